"""How `smq publish` sends the tables of an input, and what it says when it ends early."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from smq.cli.files import table_publisher
from smq.cli.files.table_publisher import InputRows, TablePublisher, split_large_values
from smq.producer import Producer
from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Column
from support.in_memory.acking_engine import engine, open_producer

__all__ = ["open_producer"]

LINES = [pa.table({"value": pa.array([b"a", b"b"], pa.binary())}), pa.table({"value": pa.array([b"c"], pa.binary())})]


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(table_publisher, "print_note", found.append)
    monkeypatch.setattr(table_publisher, "STOP_SECONDS", 0.01)
    return found


def test_an_interrupt_says_what_is_durable_and_does_not_wait_for_the_rest(
    open_producer: Callable[..., Producer], notes: list[str]
) -> None:
    producer = open_producer(0.0)
    publisher = TablePublisher(producer, InputRows([], None), None)

    def tables() -> object:
        yield LINES[0]
        engine(producer).answer(engine(producer).submitted[0])
        yield LINES[1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publisher.publish(tables())  # type: ignore[arg-type]
    publisher.print_interrupted()

    assert notes == [
        "2 messages before the interrupt were published; of the next 1 some may be, too. To continue with the others, "
        "add --skip 2"
    ]


def test_an_error_says_what_is_published_and_how_to_continue(
    open_producer: Callable[..., Producer], notes: list[str]
) -> None:
    producer = open_producer(0.0)

    def tables() -> object:
        yield LINES[0]
        engine(producer).answer(engine(producer).submitted[0])
        yield pa.table({"value": [b"c"], "valve": [b"d"]})

    with pytest.raises(SchemaMismatch, match="no column valve"):
        TablePublisher(producer, InputRows([], None), None).publish(tables())  # type: ignore[arg-type]

    assert notes == ["2 messages before the error were published. To continue with the others, add --skip 2"]


def test_a_second_resume_continues_after_the_rows_of_both(
    open_producer: Callable[..., Producer], notes: list[str]
) -> None:
    producer = open_producer(0.0)

    def tables() -> object:
        yield pa.table({"value": [b"a", b"b"]})
        yield pa.table({"value": [b"c", b"d"]})
        engine(producer).answer(engine(producer).submitted[0])
        yield pa.table({"value": [b"e"], "valve": [b"f"]})

    with pytest.raises(SchemaMismatch, match="no column valve"):
        TablePublisher(producer, InputRows([], None, skip=2), None).publish(tables())  # type: ignore[arg-type]

    assert notes == ["2 messages before the error were published. To continue with the others, add --skip 4"]


def test_a_resume_that_publishes_nothing_continues_at_the_same_row(
    open_producer: Callable[..., Producer], notes: list[str]
) -> None:
    rows = InputRows([], None, skip=2)
    with pytest.raises(SchemaMismatch, match="no column valve"):
        TablePublisher(open_producer(0.0), rows, None).publish([pa.table({"value": [b"c"], "valve": [b"d"]})])

    assert notes == ["0 messages before the error were published. To continue with the others, add --skip 2"]


@pytest.mark.parametrize(("skip", "left"), [(0, [b"a", b"b", b"c"]), (1, [b"b", b"c"]), (2, [b"c"]), (9, [])])
def test_rows_at_the_start_are_left_out_on_request(skip: int, left: list[bytes]) -> None:
    rows = InputRows([], None, skip=skip)

    assert [value for table in LINES for value in rows.of(table)["value"].to_pylist()] == left


def test_errors_count_the_rows_that_are_left_out() -> None:
    rows = InputRows([Column("n", "int8")], None, skip=2)

    with pytest.raises(SchemaMismatch, match="row 4: 300"):
        rows.of(pa.table({"n": [1, 2, 3, 300]}))


def test_a_large_value_is_sent_alone_and_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_publisher, "LARGE_VALUE_BYTES", 3)
    values = [b"large", b"a", None, b"b", b"large", b"large", b"c"]
    rows = pa.table({"key": pa.nulls(7, pa.binary()), "value": pa.array(values, pa.binary())})

    parts = [part["value"].to_pylist() for part in split_large_values(rows)]

    assert parts == [[b"large"], [b"a", None, b"b"], [b"large"], [b"large"], [b"c"]]
    typed = pa.table({"value": ["large"]})
    assert split_large_values(typed) == [typed], "on a topic with a schema no value is large"
