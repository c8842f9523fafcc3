"""Decodes the records of a batch to Arrow, and refuses a batch of which one record cannot be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch

from smq_broker.kafka.records.batch_header import COMPRESSION_MASK, HEADER, MAGIC, MIN_RECORD_BYTES, BatchHeader
from smq_broker.kafka.records.decompression import decompress
from smq_broker.kafka.records.errors import InvalidRecord
from smq_storage.chunks.python_times import NOT_IN_PYTHON, all_in_python
from smq_storage.chunks.schemas import HEADERS

# Records that are Python objects at the same time.
_RECORDS_AT_ONCE = 10_000
# The codec may look a few bytes behind the end of wrong records before it refuses them.
_PADDING = bytes(32)
_TIME = pa.timestamp("ms", tz="UTC")


class DecodedRecords(NamedTuple):
    """One element for each record."""

    timestamps: pa.Array
    """int64, milliseconds since 1970; -1 if a producer has set none."""
    keys: pa.Array
    values: pa.Array
    headers: pa.Array
    """As in chunks; null for a record without headers."""


def decode_records(data: memoryview, header: BatchHeader, max_bytes: int) -> DecodedRecords:
    """All records of the batch that :func:`~.batch_header.parse_batch` has accepted.

    Raises RecordsTooLarge if they have more than ``max_bytes`` once they are decompressed, else InvalidRecord.
    """
    records = decompress(header.compression, data[HEADER.size :], max_bytes)
    if len(records) < header.records * MIN_RECORD_BYTES:
        raise InvalidRecord(f"{header.records} records cannot have {len(records)} bytes")
    start = HEADER.pack(
        *(0, header.length, header.leader_epoch, MAGIC, header.crc, header.attributes & ~COMPRESSION_MASK),
        *(header.last_offset_delta, header.base_timestamp_ms, header.max_timestamp_ms),
        *(header.producer_id, header.producer_epoch, header.base_sequence, header.records),
    )
    batch = DefaultRecordBatch(memoryview(b"".join((start, records, _PADDING)))[: -len(_PADDING)])
    iterator = iter(batch)
    parts = [
        _decode_some(iterator, first, min(_RECORDS_AT_ONCE, header.records - first))
        for first in range(0, header.records, _RECORDS_AT_ONCE)
    ]
    _check_end(iterator, header.records)
    return parts[0] if len(parts) == 1 else DecodedRecords(*map(pa.concat_arrays, zip(*parts, strict=True)))


def _decode_some(iterator: Any, first: int, number: int) -> DecodedRecords:
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
    times = pa.array(timestamps, pa.int64())
    _check_times(times, first)
    return DecodedRecords(times, pa.array(keys, pa.binary()), pa.array(values, pa.binary()), _to_arrow(headers))


def _to_arrow(headers: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    return pa.array(headers, HEADERS)


def _check_times(times: pa.Array, first: int) -> None:
    if all_in_python(times.view(_TIME)):
        return
    index = next(it for it in range(len(times)) if not all_in_python(times[it : it + 1].view(_TIME)))
    raise InvalidRecord(f"its timestamp is {times[index]} ms after 1970: {NOT_IN_PYTHON}", first + index)


def _check_end(iterator: Any, records: int) -> None:
    try:
        next(iterator)
    except StopIteration:
        return
    except Exception as error:
        raise InvalidRecord(f"more bytes follow the last one: {error}", records - 1) from None
    raise InvalidRecord("more records follow the last one", records - 1)
