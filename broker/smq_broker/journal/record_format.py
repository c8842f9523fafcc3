"""The format of a journal file. Only this module knows how bytes become records.

A file begins with a mark that has a random nonce. Records follow, and a mark for their end. A file is used several
times, so the bytes behind that may be of its former records::

    FILE  record  record  record  END  former bytes

A mark is 24 bytes (little endian)::

    4 bytes  kind; the last byte of FILE is the version
    u32, u64 the nonce in FILE (second field), the lengths of header and body in RECORD, zeros in END
    u64      xxh3_64 of the 16 bytes before

A record is a RECORD mark, a header, a body, and a u64 with the xxh3_64 of what is between. The header is the protobuf
of a replication message. The body is its rows as one Arrow IPC message, or nothing if the header has them. Zeros
before the body align its buffers to 8 bytes. Zeros after it align the next mark to 32 bytes.

All checksums are seeded with the nonce and the position, so former records never count.

One write replaces the END mark by a record and another END mark. Its bytes appear in their order if the process is
killed meanwhile, and those of one page at once. No mark crosses a page, and a record's checksum is in the page of the
mark behind it. So a record without its checksum, which no mark follows, is the one that was being written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import xxhash

FILE = b"SMQ\x03"
# The versions that this program reads. In version 2 all rows are in the body.
READABLE_FILES = (FILE, b"SMQ\x02")
RECORD = b"RECD"
END = b"END\x00"

_FIELDS = struct.Struct("<4sIQ")
_MARK = struct.Struct("<4sIQQ")
_CHECKSUM = struct.Struct("<Q")

# Where the first record begins.
RECORDS_AT = _MARK.size
# The size of a file without records.
EMPTY_BYTES = 2 * _MARK.size
# What a file has behind its last record.
END_BYTES = _MARK.size

_BODY_ALIGNMENT = 8
_RECORD_ALIGNMENT = 32
# Pages of other sizes are multiples of it.
_PAGE = 4096

Bytes: TypeAlias = bytes | memoryview | pa.Buffer


class FileState(Enum):
    """How a file ends."""

    WHOLE = "whole"
    """With a whole record."""
    TORN = "torn"
    """With the beginning of a record, because the process ended while it wrote."""
    DAMAGED = "damaged"
    """With bytes that are not a record."""
    FOREIGN = "of another version"
    """Nothing is known of it, because another version of this program wrote it."""


class StoredRecord(NamedTuple):
    """Where a record's parts are in its file, in bytes."""

    header_at: int
    header_length: int
    body_at: int
    body_length: int
    end: int


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """The records at the beginning of a file, and why there are no more."""

    records: tuple[StoredRecord, ...]
    state: FileState

    @property
    def size(self) -> int:
        """In bytes, without what is behind the records."""
        return self.records[-1].end if self.records else 0


def empty_file(nonce: int) -> bytes:
    """The first ``EMPTY_BYTES`` of a file without records. ``nonce`` has 64 random bits."""
    return _mark(FILE, 0, nonce, 0) + _mark(END, 0, 0, nonce ^ RECORDS_AT)


def record_parts(nonce: int, at: int, header: bytes, body: Sequence[Bytes]) -> tuple[list[Bytes], StoredRecord]:
    """The buffers to write at ``at``, where records end, and where this one is. ``body`` is in some parts."""
    body_length = sum(_length(part) for part in body)
    body_at, body_end, end = _layout(at, len(header), body_length)
    seed = nonce ^ at
    checksum = xxhash.xxh3_64(seed=seed)
    padded = header.ljust(body_at - at - _MARK.size, b"\0")
    padding = bytes(end - _CHECKSUM.size - body_end)
    for part in (padded, *body, padding):
        checksum.update(part)  # type: ignore[arg-type]
    begin = _mark(RECORD, len(header), body_length, seed) + padded
    rest = padding + _CHECKSUM.pack(checksum.intdigest()) + _mark(END, 0, 0, nonce ^ end)
    return [begin, *body, rest], StoredRecord(at + _MARK.size, len(header), body_at, body_length, end)


def scan(data: bytes | memoryview) -> ScannedFile:
    """Checks the records of a whole file."""
    view = memoryview(data)
    nonce = _nonce(view)
    if isinstance(nonce, FileState):
        return ScannedFile((), nonce)
    records: list[StoredRecord] = []
    at = RECORDS_AT
    while True:
        found = _record_at(view, at, nonce)
        if isinstance(found, FileState):
            return ScannedFile(tuple(records), found)
        records.append(found)
        at = found.end


def readable_records(data: bytes | memoryview) -> Iterator[StoredRecord]:
    """All undamaged records of a damaged file that can be found: those whose lengths can be followed from the start."""
    view = memoryview(data)
    nonce = _nonce(view)
    if isinstance(nonce, FileState):
        return
    at = RECORDS_AT
    while (mark := _read_mark(view, at, nonce ^ at)) is not None and mark[0] == RECORD:
        found = _record_at(view, at, nonce)
        if isinstance(found, StoredRecord):
            yield found
        _, _, at = _layout(at, mark[1], mark[2])


def _nonce(view: memoryview) -> int | FileState:
    """The nonce of a file, or the state of one without."""
    mark = _read_mark(view, 0, 0)
    if mark is not None and mark[0] in READABLE_FILES:
        return mark[2]
    if not view:
        return FileState.WHOLE
    if len(view) < _MARK.size:
        return FileState.TORN
    kind = bytes(view[: len(FILE)])
    return FileState.FOREIGN if kind[:-1] == FILE[:-1] and kind not in READABLE_FILES else FileState.DAMAGED


def _record_at(view: memoryview, at: int, nonce: int) -> StoredRecord | FileState:
    seed = nonce ^ at
    mark = _read_mark(view, at, seed)
    if mark is None:
        return FileState.TORN if at + _MARK.size > len(view) else FileState.DAMAGED
    kind, header_length, body_length = mark
    if kind != RECORD:
        return FileState.WHOLE if kind == END else FileState.DAMAGED
    header_at = at + _MARK.size
    body_at, _, end = _layout(at, header_length, body_length)
    checksum_at = end - _CHECKSUM.size
    if end > len(view):
        return FileState.TORN
    if xxhash.xxh3_64_intdigest(view[header_at:checksum_at], seed) != _CHECKSUM.unpack_from(view, checksum_at)[0]:  # type: ignore[arg-type]
        return FileState.TORN if _read_mark(view, end, nonce ^ end) is None else FileState.DAMAGED
    return StoredRecord(header_at, header_length, body_at, body_length, end)


def _layout(at: int, header_length: int, body_length: int) -> tuple[int, int, int]:
    """Where the body of a record begins and ends, and where the next mark is."""
    body_at = at + _MARK.size + header_length + -header_length % _BODY_ALIGNMENT
    body_end = body_at + body_length
    end = body_end + _CHECKSUM.size
    end += -end % _RECORD_ALIGNMENT
    if end % _PAGE == 0:
        end += _RECORD_ALIGNMENT
    return body_at, body_end, end


def _mark(kind: bytes, first: int, second: int, seed: int) -> bytes:
    fields = _FIELDS.pack(kind, first, second)
    return fields + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(fields, seed))


def _read_mark(view: memoryview, at: int, seed: int) -> tuple[bytes, int, int] | None:
    """Kind and both fields; None if there is no such mark."""
    if at + _MARK.size > len(view):
        return None
    kind, first, second, checksum = _MARK.unpack_from(view, at)
    if checksum != xxhash.xxh3_64_intdigest(view[at : at + _FIELDS.size], seed):  # type: ignore[arg-type]
        return None
    return kind, first, second


def _length(part: Bytes) -> int:
    return part.size if isinstance(part, pa.Buffer) else len(part)
