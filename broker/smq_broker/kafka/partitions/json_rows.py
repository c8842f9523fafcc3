"""Rows of a topic with a schema as Kafka's clients see them: the value of a record is a JSON object with the columns.

The key of a record is the text of the topic's key column. Headers and timestamp are those of the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from smq_broker.kafka.records.decoding import NO_TIMESTAMP, RecordLists
from smq_broker.kafka.records.errors import InvalidRecord
from smq_broker.rows.blocks import ArrowBlock
from smq_core.model.entities import Topic
from smq_storage.chunks.schemas import HEADERS, RESERVED, TIMESTAMP, message_schema
from smq_storage.conversion.exact_cast import exact_cast
from smq_storage.json_lines.columns import RowTable, row_schema
from smq_storage.json_lines.fields import InvalidField
from smq_storage.json_lines.rows import json_line, python_rows
from smq_storage.json_lines.values import to_json

US_PER_MS = 1000


def json_messages(rows: pa.Table, key: str | None) -> pa.Table:
    """The rows as messages: ``timestamp``, ``key``, ``value`` and ``headers``. ``key`` is the key column.

    Raises InvalidRequest if JSON cannot have a row.
    """
    columns = rows.drop_columns([name for name in RESERVED if name in rows.column_names])
    found = python_rows(columns)
    keys = _texts(found, key) if key is not None else [None] * len(found)
    return pa.table(
        {
            "timestamp": rows.column("timestamp"),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(map(json_line, found), pa.binary()),
            "headers": rows.column("headers"),
        }
    )


def json_block(parts: Iterable[RecordLists], topic: Topic, partition: int, now_ms: int) -> ArrowBlock:
    """The records as rows of the topic. Raises InvalidRecord for the first one that is none."""
    table = RowTable(row_schema(topic.spec.schema))
    times: list[int] = []
    keys: list[bytes | None] = []
    headers: list[Any] = []
    for lists in parts:
        for number, value in enumerate(lists.values, len(keys)):
            _add(table, value, number)
        times += ((now_ms if it == NO_TIMESTAMP else it) * US_PER_MS for it in lists.timestamps)
        keys += lists.keys
        headers += lists.headers
    rows = table.table()
    _check_keys(keys, rows, topic.spec.key)
    schema = message_schema(topic.spec.schema)
    given = {
        "partition": pa.array(np.full(len(keys), partition, np.int32)),
        "timestamp": pa.array(times, pa.int64()).cast(TIMESTAMP),
        "headers": pa.array(headers, HEADERS) if any(headers) else pa.nulls(len(keys), HEADERS),
        **{name: rows.column(name).combine_chunks() for name in rows.column_names},
    }
    columns = [exact_cast(given[field.name], field.type) for field in schema]
    return ArrowBlock(pa.RecordBatch.from_arrays(columns, schema=schema))


def _add(table: RowTable, value: bytes | None, number: int) -> None:
    try:
        if value is None:
            raise InvalidField("a topic with a schema has no records without a value")
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise InvalidField("its value is not UTF-8: send a JSON object with the topic's columns") from None
        values, headers, time = table.read(text)
        if headers is not None or time is not None:
            raise InvalidField("headers and timestamp belong to the record, not into its value")
        table.add_row(values)
    except InvalidField as problem:
        raise InvalidRecord(str(problem), number) from None


def _check_keys(keys: Sequence[bytes | None], rows: pa.Table, column: str | None) -> None:
    """The log keeps columns and no other key, so a key that says something else would be lost."""
    if not any(key is not None for key in keys):
        return
    own = _texts(python_rows(rows.select([column])), column) if column is not None else [None] * len(keys)
    for number, (key, text) in enumerate(zip(keys, own, strict=True)):
        if key is not None and key != text:
            hint = f"its key is not that of its column {column}" if column is not None else "the topic has no key"
            raise InvalidRecord(f"{hint}: send it without a key, and partition by what you like", number)


def _texts(rows: Sequence[Mapping[str, Any]], column: str) -> list[bytes | None]:
    return [_text(row[column]) for row in rows]


def _text(value: Any) -> bytes | None:
    """The text of a column's value: bytes as they are, and other values as in JSON, without its quotes."""
    if value is None or isinstance(value, bytes):
        return value
    found = to_json(value, bytes.hex)
    return (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)).encode()
