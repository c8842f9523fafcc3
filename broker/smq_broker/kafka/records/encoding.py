"""Encodes records from Arrow as a batch for Kafka's clients."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from smq_broker.kafka.records.batch_header import MAGIC

# Neither the offset nor the epoch is covered by the CRC.
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_NO_PRODUCER = (-1, -1, -1)
_MAX_BATCH_BYTES = 2**31 - 1


def encode_records(
    base_offset: int, leader_epoch: int, *, timestamps: pa.Array, keys: pa.Array, values: pa.Array, headers: pa.Array
) -> bytearray:
    """One uncompressed batch of records with consecutive offsets, at least one; without a producer.

    ``timestamps`` are int64 in milliseconds, ``headers`` as in chunks; what is null in a header becomes an empty key.
    Raises OverflowError if they do not fit into one batch of 2 GiB.
    """
    builder = DefaultRecordBatchBuilder(MAGIC, 0, 0, *_NO_PRODUCER, _MAX_BATCH_BYTES)
    append = builder.append
    rows = zip(timestamps.to_pylist(), keys.to_pylist(), values.to_pylist(), _from_arrow(headers), strict=True)
    for number, (timestamp, key, value, pairs) in enumerate(rows):
        if append(number, timestamp, key, value, pairs) is None:
            raise OverflowError(f"{len(timestamps)} records do not fit into one batch")
    batch: bytearray = builder.build()
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)
    return batch


def _from_arrow(headers: pa.Array) -> list[list[tuple[str, bytes | None]]]:
    if headers.null_count == len(headers):
        return [[]] * len(headers)
    return [[_pair(header) for header in row] if row else [] for row in headers.to_pylist()]


def _pair(header: Any) -> tuple[str, bytes | None]:
    return ("", None) if header is None else (header["key"] or "", header["value"])
