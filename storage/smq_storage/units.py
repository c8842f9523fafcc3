"""Sizes (``32Mi``) and durations (``5s``) as people write them; inside they are bytes and microseconds."""

from __future__ import annotations

import re
from typing import overload

UNLIMITED = "unlimited"

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_SIZES = _BINARY | _DECIMAL
_TIMES = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[a-z]+)+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)([a-z]+)")


def parse_size(value: object) -> int:
    """Bytes of ``32Mi``, ``1G``, ``4096``. Raises ValueError that says what to write."""
    match = _SIZE.fullmatch(str(value)) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
    if not match:
        raise ValueError(f"must be a size such as 32Mi, not {value!r}")
    number, unit = match.groups()
    if unit not in _SIZES:
        raise ValueError(f"{value!r} has the unknown unit {unit!r}: use {', '.join(u for u in _SIZES if u)}")
    return _whole(number, _SIZES[unit])


def parse_duration(value: object) -> int:
    """Microseconds of ``5s``, ``24h``, ``1h30m``, ``500ms``. Raises ValueError that says what to write."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError(f"must be a duration with its unit, such as 5s or 24h, not {value!r}")
    total = 0
    for number, unit in _DURATION_PART.findall(value):
        if unit not in _TIMES:
            raise ValueError(f"{value!r} has the unknown unit {unit!r}: use {', '.join(reversed(_TIMES))}")
        total += _whole(number, _TIMES[unit])
    return total


@overload
def size_text(size: int) -> str: ...
@overload
def size_text(size: None) -> str: ...
def size_text(size: int | None) -> str:
    """The shortest exact text that :func:`parse_size` reads back; None is ``unlimited``."""
    if size is None:
        return UNLIMITED
    for unit, factor in reversed(_BINARY.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def duration_text(duration: int | None) -> str:
    """The shortest exact text that :func:`parse_duration` reads back; None is ``unlimited``."""
    if duration is None:
        return UNLIMITED
    for unit, factor in _TIMES.items():
        if duration and duration % factor == 0:
            return f"{duration // factor}{unit}"
    return "0s"


def _whole(number: str, factor: int) -> int:
    return int(number) * factor if number.isdigit() else round(float(number) * factor)
