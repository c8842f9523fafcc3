"""The header of a record batch, which has all that the log needs to know of it."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from smq_broker.kafka.records.errors import (
    CorruptRecord,
    InvalidRecord,
    TransactionalRecords,
    UnsupportedCompression,
    UnsupportedRecordFormat,
)

# base offset, length, leader epoch, magic, CRC; attributes, last offset delta, base and max timestamp, producer id and
# epoch, base sequence, number of records
HEADER = struct.Struct(">qiibIhiqqqhii")
MAGIC = 2
# In front of what the length counts, and of what the CRC covers.
LENGTH_END = 12
_MAGIC_AT = 16
CRC_END = 21

COMPRESSION_MASK = 0b111
_APPEND_TIME_FLAG = 1 << 3
_TRANSACTIONAL = 1 << 4
_CONTROL = 1 << 5
_RESERVED = ~0b111111
# The shortest record: length, attributes, both deltas, no key, no value, no headers.
MIN_RECORD_BYTES = 7


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_COMPRESSIONS = frozenset(Compression)


class BatchHeader(NamedTuple):
    """The fields of ``HEADER``.

    ``base_offset`` and ``leader_epoch`` are not covered by the CRC, so that a broker can overwrite them.
    """

    base_offset: int
    length: int
    """Of the batch after this field, in bytes."""
    leader_epoch: int
    magic: int
    """The version of the format."""
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    """As the producer says it, which some do wrong."""
    producer_id: int
    """-1 if the producer is not idempotent."""
    producer_epoch: int
    base_sequence: int
    records: int
    """How many."""

    @property
    def compression(self) -> Compression:
        return Compression(self.attributes & COMPRESSION_MASK)

    @property
    def has_append_time(self) -> bool:
        """Whether readers take ``max_timestamp_ms`` for the time of all records."""
        return bool(self.attributes & _APPEND_TIME_FLAG)


def parse_batch(data: memoryview) -> BatchHeader:
    """The header of the one batch that ``data`` is. Raises RecordError; records are not decoded."""
    if len(data) <= _MAGIC_AT:
        raise CorruptRecord(f"a record batch of {len(data)} bytes has no header")
    if data[_MAGIC_AT] != MAGIC:
        raise UnsupportedRecordFormat(f"record batches have format 2 here, not {data[_MAGIC_AT]}")
    if len(data) < HEADER.size:
        raise CorruptRecord(f"a record batch of {len(data)} bytes has no header")
    header = BatchHeader._make(HEADER.unpack_from(data))
    size = LENGTH_END + header.length
    if size < HEADER.size or size > len(data):
        raise CorruptRecord(f"a record batch of {len(data)} bytes says that it has {size}")
    if size < len(data):
        raise InvalidRecord("a request has one record batch for a partition, not more")
    if crc32c(data[CRC_END:]) != header.crc:
        raise CorruptRecord("the CRC of a record batch does not match")
    _check(header)
    return header


def _check(header: BatchHeader) -> None:
    if header.attributes & _CONTROL:
        raise InvalidRecord("clients send no control batches")
    if header.attributes & _TRANSACTIONAL:
        raise TransactionalRecords("transactions are not supported")
    if header.attributes & _RESERVED:
        raise InvalidRecord(f"a record batch has unknown attributes: {header.attributes:#x}")
    if header.attributes & COMPRESSION_MASK not in _COMPRESSIONS:
        raise UnsupportedCompression(f"compression {header.attributes & COMPRESSION_MASK} is not known")
    if header.records < 1 or header.records != header.last_offset_delta + 1:
        raise InvalidRecord(f"a batch of {header.records} records has the last offset {header.last_offset_delta}")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord("a batch of an idempotent producer has no epoch or no sequence")


def count_records(batches: bytes | bytearray | memoryview) -> int:
    """How many records these whole batches have, which this broker has made or checked before."""
    view, count, at = memoryview(batches), 0, 0
    while at + HEADER.size <= len(view):
        fields = HEADER.unpack_from(view, at)
        count += fields[-1]
        at += LENGTH_END + fields[1]
    return count
