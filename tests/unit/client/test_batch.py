"""A batch as a program sees it: its messages, its frames, and its one line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from smq.batch import ROWS_AT_ONCE, Batch, Message
from smq_core.errors import InvalidRequest
from smq_core.model.entities import Column
from smq_storage.chunks.schemas import chunk_schema

AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
COLUMNS = (Column("name", "string"), Column("delay", "float64", nullable=True))


def batch_of(columns: tuple[Column, ...], *rows: dict[str, object]) -> Batch:
    common = {"partition": 3, "timestamp": AT, "appended": LATER}
    return Batch(
        table=pa.Table.from_pylist([common | row for row in rows], chunk_schema(columns)),
        segment="t-0-8-1",
        first_offset=7,
        positions={},
    )


def test_messages_have_what_send_takes() -> None:
    batch = batch_of((), {"value": b"v", "key": b"k", "headers": [("a", b"1")]}, {"value": None})

    assert list(batch) == [
        Message(
            value=b"v",
            key=b"k",
            headers=[("a", b"1")],
            timestamp=AT,
            segment="t-0-8-1",
            offset=7,
            partition=3,
            appended=LATER,
        ),
        Message(
            value=None, key=None, headers=[], timestamp=AT, segment="t-0-8-1", offset=8, partition=3, appended=LATER
        ),
    ]


def test_messages_of_a_schema_are_dictionaries() -> None:
    batch = batch_of(COLUMNS, {"name": "a", "delay": 1.5}, {"name": "b"})

    assert [(m.value, m.key) for m in batch] == [
        ({"name": "a", "delay": 1.5}, None),
        ({"name": "b", "delay": None}, None),
    ]


@pytest.mark.parametrize("types", [("string", "float64"), ("binary", "string"), ("dictionary<binary>", "binary")])
def test_columns_named_key_and_value_are_columns(types: tuple[str, str]) -> None:
    columns = (Column("key", types[0], nullable=True), Column("value", types[1], nullable=True))
    (message,) = batch_of(columns, {"key": None, "value": None})

    assert (message.value, message.key) == ({"key": None, "value": None}, None)


def test_offsets_go_on_beyond_the_rows_that_are_python_objects_at_once() -> None:
    batch = batch_of((), *({"value": b"%d" % n} for n in range(ROWS_AT_ONCE + 2)))

    assert [(m.value, m.offset) for m in batch] == [(b"%d" % n, 7 + n) for n in range(ROWS_AT_ONCE + 2)]


def test_a_batch_is_shown_in_one_line() -> None:
    assert repr(batch_of(COLUMNS, {"name": "a"}, {"name": "b"})) == "Batch('t-0-8-1', 2 messages at 7..8)"
    assert repr(batch_of(())) == "Batch('t-0-8-1', 0 messages at 7)"


def test_a_batch_is_a_frame_of_pandas() -> None:
    frame = batch_of(COLUMNS, {"name": "a", "delay": 1.5}).to_pandas()

    assert list(frame["name"]) == ["a"] and list(frame["delay"]) == [1.5]


def test_a_batch_is_a_frame_of_polars() -> None:
    pytest.importorskip("polars")

    assert batch_of(COLUMNS, {"name": "a"}).to_polars()["name"].to_list() == ["a"]


def test_decimals_that_polars_has_are_kept_and_larger_ones_are_refused() -> None:
    pytest.importorskip("polars")
    columns = (Column("price", "decimal256(50, 3)"), Column("parts", "list<decimal256(50, 3)>", nullable=True))
    price, large = Decimal("1.250"), Decimal(10) ** 40

    frame = batch_of(columns, {"price": price, "parts": [price]}).to_polars()

    assert frame["price"].to_list() == [price] and frame["parts"].to_list() == [[price]]
    with pytest.raises(InvalidRequest, match="column price has decimals of more than 38 digits"):
        batch_of(columns, {"price": large}).to_polars()
    assert list(batch_of(columns, {"price": large}).to_pandas()["price"]) == [large]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)

    with pytest.raises(ImportError, match="polars is not installed: pip install polars"):
        batch_of(()).to_polars()
