"""Compressed inputs, which `smq publish` refuses: as lines they would become messages that nobody can read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from smq_core.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class _Compression:
    """``beginnings``: the first bytes of such data. ``suffix``: how file names end; empty if no name is refused."""

    name: str
    beginnings: tuple[bytes, ...]
    unpacked_by: str
    suffix: str = ""


_KNOWN = (
    _Compression("gzip", (b"\x1f\x8b\x08",), "zcat", ".gz"),
    _Compression("zstd", (b"\x28\xb5\x2f\xfd",), "zstdcat", ".zst"),
    _Compression("xz", (b"\xfd7zXZ\x00",), "xzcat", ".xz"),
    _Compression("bzip2", tuple(b"BZh%d1AY&SY" % level for level in range(1, 10)), "bzcat", ".bz2"),
    _Compression("lz4", (b"\x04\x22\x4d\x18",), "lz4cat"),
    _Compression("zip", (b"PK\x03\x04",), "unzip -p"),
)


def refuse_compressed_name(name: str, input_format: str) -> None:
    """Raises InvalidRequest for the name of a compressed file, whose content has the format."""
    suffix = Path(name).suffix.lower()
    for it in _KNOWN:
        if suffix and suffix == it.suffix:
            raise InvalidRequest(f"{name} is compressed: {_advice(it, name, input_format)}")


def refuse_compressed(beginning: bytes) -> None:
    """Raises InvalidRequest if an input that begins so is compressed."""
    for it in _KNOWN:
        if beginning.startswith(it.beginnings):
            raise InvalidRequest(f"the input is compressed ({it.name}): {_advice(it, 'FILE', 'csv')}")


def _advice(compression: _Compression, file: str, input_format: str) -> str:
    unpacked = f"{compression.unpacked_by} {file}"
    return f"unpack it on the way, as in `{unpacked} | smq publish TOPIC --input {input_format}`"
