"""Single messages gathered into batches: plain lists first, Arrow arrays once for each batch."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq.delivery import Fate
from smq.keys import Keyless
from smq.tables import Shaper
from smq_core.errors import InvalidRequest, SchemaMismatch
from smq_core.keyspace import partitions_of
from smq_storage.schemas import HEADERS, TIMESTAMP

ROW_OVERHEAD = 32
"""What a message costs beside its key and value, roughly."""


class Accumulation:
    """Messages that will share a batch. One writer at a time."""

    __slots__ = ("born", "fate", "headers", "keys", "nbytes", "times", "values")

    def __init__(self, fate: Fate, born: float) -> None:
        self.fate = fate
        self.born = born
        self.values: list[object] = []
        self.keys: list[bytes | None] = []
        self.times: list[int] = []
        self.headers: dict[int, list[tuple[str, bytes | None]]] = {}
        self.nbytes = 0

    def wire(self, shaper: Shaper, keyless: Keyless) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
        """The wire batch and the partitions of its rows."""
        rows = len(self.values)
        times = pa.array(np.array(self.times, np.int64)).cast(TIMESTAMP)
        headers = (
            pa.array([self.headers.get(i) for i in range(rows)], HEADERS) if self.headers else pa.nulls(rows, HEADERS)
        )
        if shaper.typed:
            body = pa.RecordBatch.from_pylist(self.values, schema=body_schema(shaper))
            columns = [times, *body.columns, headers]
            part = pa.RecordBatch.from_arrays(columns, names=["timestamp", *body.schema.names, "headers"])
            return shaper.wire(part, shaper.topic.spec.key, 0, keyless)
        places = self._places(rows, shaper.topic.spec.partitions, keyless)
        keys = pa.array(self.keys, pa.binary())
        columns = [pa.array(places), times, keys, pa.array(self.values, pa.binary()), headers]
        return pa.RecordBatch.from_arrays(columns, schema=shaper.schema), places

    def _places(self, rows: int, partitions: int, keyless: Keyless) -> npt.NDArray[np.int32]:
        without = self.keys.count(None)
        if not without:
            return partitions_of(self.keys, partitions)  # type: ignore[arg-type]
        places = np.full(rows, keyless.next(), np.int32)
        if without < rows:
            keyed = [i for i, key in enumerate(self.keys) if key is not None]
            places[keyed] = partitions_of([self.keys[i] for i in keyed], partitions)  # type: ignore[misc]
        return places


def body_schema(shaper: Shaper) -> pa.Schema:
    """The topic's own columns."""
    return pa.schema([f for f in shaper.schema if f.name not in ("partition", "timestamp", "headers")])


def check_value(value: object, shaper: Shaper) -> tuple[object, int]:
    """The value as it will be accumulated, and its size in bytes. Raises InvalidRequest, SchemaMismatch."""
    if shaper.typed:
        return _check_row(value, shaper)
    if value is None:
        return None, 0
    if isinstance(value, (bytes, bytearray, memoryview)):
        plain = bytes(value)
        return plain, len(plain)
    raise InvalidRequest(f"a value is bytes, not {type(value).__name__}: encode it, as text.encode() does")


def _check_row(value: object, shaper: Shaper) -> tuple[object, int]:
    schema = body_schema(shaper)
    problem: object = None
    if not isinstance(value, Mapping):
        problem = f"a value is a mapping of columns, not {type(value).__name__}"
    elif unknown := [str(n) for n in value if n not in schema.names]:
        problem = f"the topic has no column {', '.join(unknown)}"
    else:
        try:
            row = pa.RecordBatch.from_pylist([dict(value)], schema=schema)
            missing = [f.name for f in schema if not f.nullable and row.column(f.name).null_count]
            if not missing:
                return dict(value), row.nbytes
            problem = f"{', '.join(missing)} may not be null"
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
            problem = error
    raise SchemaMismatch(f"{problem}; {shaper.topic.name} expects: {shaper.expected}", expected=shaper.expected)


def check_key(key: object, shaper: Shaper) -> bytes | None:
    """Raises InvalidRequest."""
    if key is None:
        return None
    if shaper.typed:
        raise InvalidRequest("on a topic with a schema the key is in the value: leave key out")
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    raise InvalidRequest(f"a key is bytes, not {type(key).__name__}: encode it, as text.encode() does")


def check_headers(headers: object) -> list[tuple[str, bytes | None]]:
    """Raises InvalidRequest."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)  # type: ignore[call-overload]
    for pair in pairs:
        if (
            not isinstance(pair, tuple)
            or len(pair) != 2
            or not isinstance(pair[0], str)
            or not isinstance(pair[1], (bytes, type(None)))
        ):
            raise InvalidRequest(f"headers are pairs of str and bytes, not {pair!r}")
    return pairs


def check_timestamp(timestamp: object) -> int:
    """Microseconds. Raises InvalidRequest."""
    if isinstance(timestamp, datetime):
        aware = timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)
        delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    if isinstance(timestamp, int) and not isinstance(timestamp, bool) and -(1 << 63) <= timestamp < 1 << 63:
        return timestamp
    raise InvalidRequest(f"a timestamp is a datetime or whole microseconds since 1970, not {timestamp!r}")
