"""The format of a journal file: records, one after another. Only this module knows how bytes become records.

A record is a prefix of 32 bytes (little endian), then a header (the protobuf of a replication message), then a body
(its rows as one Arrow IPC message)::

    4 bytes  magic, whose last byte is the version
    u32      length of the header        u64  length of the body
    u64      xxh3_64 of header, padding and body
    u64      xxh3_64 of the 24 bytes before

Zeros pad the header to a multiple of 8 bytes, so that the buffers in the body are aligned. The prefix has a checksum of
its own, so that a damaged length is never mistaken for a record that was cut off by the end of the process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import pyarrow as pa
import xxhash

MAGIC = b"SMQ\x01"
_FIELDS = struct.Struct("<4sIQQ")
_CHECKSUM = struct.Struct("<Q")
PREFIX_BYTES = _FIELDS.size + _CHECKSUM.size
_ALIGNMENT = 8

Bytes: TypeAlias = bytes | memoryview | pa.Buffer


class FileState(Enum):
    """How a file ends."""

    WHOLE = "whole"
    """With a whole record."""
    TORN = "torn"
    """With the beginning of a record, because the process ended while it wrote."""
    DAMAGED = "damaged"
    """With bytes that are not a record."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """Where a record's parts are in its file, in bytes."""

    header_at: int
    header_length: int
    body_at: int
    body_length: int


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """The records at the beginning of a file, and why there are no more."""

    records: tuple[StoredRecord, ...]
    state: FileState


def record_parts(header: bytes, body: Bytes) -> list[Bytes]:
    """One record as buffers to write one after another."""
    padding = bytes(-len(header) % _ALIGNMENT)
    payload = xxhash.xxh3_64(header)
    payload.update(padding)
    payload.update(body)  # type: ignore[arg-type]
    fields = _FIELDS.pack(MAGIC, len(header), _length(body), payload.intdigest())
    prefix = fields + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(fields))
    return [prefix + header + padding, body]


def scan(data: bytes | memoryview) -> ScannedFile:
    """Checks the records of a whole file."""
    view = memoryview(data)
    records: list[StoredRecord] = []
    at = 0
    while at < len(view):
        found = _record_at(view, at)
        if isinstance(found, FileState):
            return ScannedFile(tuple(records), found)
        records.append(found)
        at = found.body_at + found.body_length
    return ScannedFile(tuple(records), FileState.WHOLE)


def readable_records(data: bytes | memoryview) -> Iterator[StoredRecord]:
    """All undamaged records of a damaged file that can be found: those whose lengths can be followed from the start."""
    view = memoryview(data)
    at = 0
    while at + PREFIX_BYTES <= len(view):
        lengths = _lengths(view[at : at + PREFIX_BYTES])
        if lengths is None:
            return
        found = _record_at(view, at)
        if isinstance(found, StoredRecord):
            yield found
        at += PREFIX_BYTES + _padded(lengths[0]) + lengths[1]


def _record_at(view: memoryview, at: int) -> StoredRecord | FileState:
    if at + PREFIX_BYTES > len(view):
        return FileState.TORN
    lengths = _lengths(view[at : at + PREFIX_BYTES])
    if lengths is None:
        return FileState.DAMAGED
    header_length, body_length, checksum = lengths
    header_at = at + PREFIX_BYTES
    body_at = header_at + _padded(header_length)
    end = body_at + body_length
    if end > len(view):
        return FileState.TORN
    if xxhash.xxh3_64_intdigest(view[header_at:end]) != checksum:  # type: ignore[arg-type]
        return FileState.DAMAGED
    return StoredRecord(header_at, header_length, body_at, body_length)


def _lengths(prefix: memoryview) -> tuple[int, int, int] | None:
    """Length of header, length of body, checksum; None if the prefix is damaged."""
    fields = prefix[: _FIELDS.size]
    if _CHECKSUM.unpack(prefix[_FIELDS.size :])[0] != xxhash.xxh3_64_intdigest(fields):  # type: ignore[arg-type]
        return None
    magic, header_length, body_length, checksum = _FIELDS.unpack(fields)
    return (header_length, body_length, checksum) if magic == MAGIC else None


def _padded(length: int) -> int:
    return length + -length % _ALIGNMENT


def _length(body: Bytes) -> int:
    return body.size if isinstance(body, pa.Buffer) else len(body)
