"""Decodes the records of a batch, and refuses a batch of which one record cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch

from smq_broker.kafka.records.batch_header import COMPRESSION_MASK, HEADER, MIN_RECORD_BYTES, BatchHeader
from smq_broker.kafka.records.decompression import decompress
from smq_broker.kafka.records.errors import InvalidRecord, InvalidTimestamp
from smq_storage.chunks.python_times import MAX_MICROS, MIN_MICROS, NOT_IN_PYTHON
from smq_storage.chunks.schemas import HEADERS

# The time of a record to which its producer gave none.
NO_TIMESTAMP = -1
# Records that are Python objects at the same time.
MAX_RECORDS_AT_ONCE = 10_000
# The codec may look a few bytes behind the end of wrong records before it refuses them.
_PADDING = bytes(32)
_MIN_MS, _MAX_MS = -(-MIN_MICROS // 1000), MAX_MICROS // 1000


class DecodedRecords(NamedTuple):
    """One element for each record."""

    timestamps: pa.Array
    """int64, milliseconds since 1970; -1 if a producer has set none."""
    keys: pa.Array
    values: pa.Array
    headers: pa.Array
    """As in chunks; null for a record without headers."""


class RecordLists(NamedTuple):
    """One item for each record: :class:`DecodedRecords` before Arrow has them."""

    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Sequence[tuple[str, bytes | None]] | None]

    def to_arrow(self) -> DecodedRecords:
        return DecodedRecords(
            pa.array(self.timestamps, pa.int64()),
            pa.array(self.keys, pa.binary()),
            pa.array(self.values, pa.binary()),
            pa.array(self.headers, HEADERS) if any(self.headers) else pa.nulls(len(self.headers), HEADERS),
        )


def decode_records(data: memoryview, header: BatchHeader, max_bytes: int) -> DecodedRecords:
    """All records of the batch that :func:`~.batch_header.parse_batch` has accepted.

    Raises RecordsTooLarge if they have more than ``max_bytes`` once they are decompressed, else InvalidRecord.
    """
    parts = [lists.to_arrow() for lists in record_lists(data, header, max_bytes)]
    return parts[0] if len(parts) == 1 else DecodedRecords(*map(pa.concat_arrays, zip(*parts, strict=True)))


def decode_few_records(data: memoryview, header: BatchHeader, max_bytes: int) -> RecordLists:
    """As :func:`decode_records`, for a batch of up to ``MAX_RECORDS_AT_ONCE`` records."""
    (lists,) = record_lists(data, header, max_bytes)
    return lists


def record_lists(data: memoryview, header: BatchHeader, max_bytes: int) -> Iterator[RecordLists]:
    """As :func:`decode_records`, with up to ``MAX_RECORDS_AT_ONCE`` records at a time."""
    records = decompress(header.compression, data[HEADER.size :], max_bytes)
    if len(records) < header.records * MIN_RECORD_BYTES:
        raise InvalidRecord(f"{header.records} records cannot have {len(records)} bytes")
    # Each record says its offset after that of the batch.
    plain = header._replace(base_offset=0, attributes=header.attributes & ~COMPRESSION_MASK)
    start = HEADER.pack(*plain)
    batch = DefaultRecordBatch(memoryview(b"".join((start, records, _PADDING)))[: -len(_PADDING)])
    iterator = iter(batch)
    for first in range(0, header.records, MAX_RECORDS_AT_ONCE):
        yield _decode_some(iterator, first, min(MAX_RECORDS_AT_ONCE, header.records - first))
    _check_end(iterator, header.records)


def _decode_some(iterator: Any, first: int, number: int) -> RecordLists:
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Sequence[tuple[str, bytes | None]] | None] = []
    for index in range(first, first + number):
        try:
            record = next(iterator)
        except Exception as error:
            raise InvalidRecord(f"it cannot be decoded: {error}", index) from None
        if record.offset != index:
            raise InvalidRecord(f"its offset is {record.offset} after that of the batch", index)
        timestamp = record.timestamp
        timestamps.append(-1 if timestamp is None else timestamp)
        keys.append(record.key)
        values.append(record.value)
        headers.append(record.headers or None)
    _check_times(timestamps, first)
    return RecordLists(timestamps, keys, values, headers)


def _check_times(times: list[int], first: int) -> None:
    if min(times) >= _MIN_MS and max(times) <= _MAX_MS:
        return
    index = next(number for number, time in enumerate(times) if not _MIN_MS <= time <= _MAX_MS)
    raise InvalidTimestamp(f"its timestamp is {times[index]} ms after 1970: {NOT_IN_PYTHON}", first + index)


def _check_end(iterator: Any, records: int) -> None:
    try:
        next(iterator)
    except StopIteration:
        return
    except Exception as error:
        raise InvalidRecord(f"more bytes follow the last one: {error}", records - 1) from None
    raise InvalidRecord("more records follow the last one", records - 1)
