"""The rules of schema changes: what is allowed never loses a value, and what is refused names its column."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.entities import Column, Layout, TopicSchema
from smq_core.model.schema_evolution import (
    can_widen,
    difference,
    evolve,
    newest_schema,
    schema_history,
    schema_of,
    violations,
)

TYPES = ("int8", "int16", "int64", "uint8", "uint64", "float32", "float64", "string", "list<int8>")
FLIGHT = Column("flight", "string")
DELAY = Column("delay", "int16")
GATE = Column("gate", "string", nullable=True)
FIRST = TopicSchema(0, (FLIGHT, DELAY, GATE))

columns = st.lists(
    st.builds(Column, st.sampled_from("abcdef"), st.sampled_from(TYPES), st.booleans()),
    min_size=1,
    max_size=6,
    unique_by=lambda column: column.name,
).map(tuple)


@pytest.mark.parametrize(
    "new",
    [
        (FLIGHT, DELAY, GATE, Column("belt", "string", nullable=True)),
        (FLIGHT, Column("delay", "int32"), GATE),
        (FLIGHT, Column("delay", "int64", nullable=True), GATE),
        (replace(FLIGHT, nullable=True), DELAY, GATE),
        (FLIGHT, DELAY),
    ],
)
def test_an_allowed_change_makes_the_next_version(new: tuple[Column, ...]) -> None:
    assert violations(FIRST, new, "flight") == []
    assert evolve(FIRST, new, "flight").version == 1


@pytest.mark.parametrize(
    ("new", "column", "advice"),
    [
        ((FLIGHT, DELAY, GATE, Column("belt", "string")), "belt", "make it nullable"),
        ((FLIGHT, DELAY, GATE, Column("row", "int8", nullable=True)), "row", "choose another name"),
        ((FLIGHT, Column("delay", "int8"), GATE), "delay", "add a column of another name"),
        ((FLIGHT, Column("delay", "uint32"), GATE), "delay", "add a column of another name"),
        ((FLIGHT, Column("delay", "float64"), GATE), "delay", "add a column of another name"),
        ((FLIGHT, DELAY, replace(GATE, nullable=False)), "gate", "stays so"),
        ((FLIGHT, GATE), "delay", "make it nullable first"),
        ((DELAY, GATE), "flight", "is the key"),
    ],
)
def test_a_refused_change_names_the_column_and_what_to_do(new: tuple[Column, ...], column: str, advice: str) -> None:
    (problem,) = violations(replace(FIRST, dropped=("row",)), new, "flight")
    assert repr(column) in problem and advice in problem


def test_the_type_of_the_key_column_stays_because_its_hash_would_change() -> None:
    wider = (FLIGHT, Column("delay", "int32"), GATE)
    assert violations(FIRST, wider, None) == []
    assert "its type stays int16" in violations(FIRST, wider, "delay")[0]


def test_a_topic_neither_gets_nor_loses_a_schema() -> None:
    assert "without" in violations(TopicSchema(0, ()), (FLIGHT,), None)[0]
    assert "with" in violations(TopicSchema(0, (GATE,)), (), None)[0]
    assert violations(TopicSchema(0, ()), (), None) == []


def test_every_refused_column_is_reported() -> None:
    assert len(violations(FIRST, (Column("belt", "string"),), None)) == 3
    with pytest.raises(ValueError, match=r"'flight'.*'delay'.*'belt'"):
        evolve(FIRST, (GATE, Column("belt", "string")), None)


def test_columns_keep_their_order_and_new_ones_follow() -> None:
    assert evolve(FIRST, (GATE, DELAY, FLIGHT), None) is FIRST
    belt = Column("belt", "string", nullable=True)
    assert evolve(FIRST, (belt, DELAY, FLIGHT), None) == TopicSchema(1, (FLIGHT, DELAY, belt), ("gate",))


def test_a_dropped_name_is_never_used_again() -> None:
    without = evolve(FIRST, (FLIGHT, DELAY), None)
    later = evolve(without, (FLIGHT, DELAY, Column("belt", "string", nullable=True)), None)
    assert later.dropped == ("gate",)
    assert "dropped before" in violations(later, (*later.columns, GATE), None)[0]


@given(columns, columns, st.booleans())
def test_what_is_allowed_loses_no_value(old: tuple[Column, ...], new: tuple[Column, ...], has_key: bool) -> None:
    """Every message of the old version can be read with the new one: kept, widened, or null."""
    key = old[0].name if has_key else None
    schema = TopicSchema(3, old, ("f",) if all(c.name != "f" for c in old) else ())
    if violations(schema, new, key):
        return
    follows = evolve(schema, new, key)
    before, after = {c.name: c for c in old}, {c.name: c for c in follows.columns}
    assert after == {c.name: c for c in new}
    for name, column in after.items():
        if name not in before:
            assert column.nullable and name not in schema.dropped
        else:
            assert column.type == before[name].type or (can_widen(before[name].type, column.type) and name != key)
            assert column.nullable or not before[name].nullable
    assert set(follows.dropped) - set(schema.dropped) == before.keys() - after.keys()
    assert all(before[name].nullable for name in before.keys() - after.keys())
    assert key is None or key in after
    assert (follows.version == 3) is (difference(old, new) == [])


@given(columns, columns, columns)
def test_steps_may_be_skipped(a: tuple[Column, ...], b: tuple[Column, ...], c: tuple[Column, ...]) -> None:
    """A column that two allowed changes keep can be read from the first version to the last."""
    first = TopicSchema(0, a)
    if violations(first, b, None) or violations(evolve(first, b, None), c, None):
        return
    kept = [column for column in c if any(column.name == old.name for old in a)]
    for column in kept:
        (old,) = [it for it in a if it.name == column.name]
        assert old.type == column.type or can_widen(old.type, column.type)


def test_a_difference_is_reported_column_by_column() -> None:
    assert difference(FIRST.columns, (DELAY, GATE, FLIGHT)) == []
    new = (FLIGHT, Column("delay", "int32", nullable=True), Column("belt", "string", nullable=True))
    assert difference(FIRST.columns, new) == [
        "column 'gate' (string, nullable) is gone",
        "column 'delay' is int32, nullable, was int16",
        "column 'belt' (string, nullable) is new",
    ]
    assert difference((FLIGHT,), (replace(FLIGHT, nullable=True),)) == [
        f"column 'flight' is {FLIGHT.type}, nullable, was not nullable"
    ]


def test_version_0_of_a_layout_without_a_history_has_the_stored_columns() -> None:
    written_before = Layout(topic="ns/t", uid="uid", partitions=4)
    assert schema_history(None, FIRST.columns) == schema_history(written_before, FIRST.columns) == (FIRST,)
    second = TopicSchema(1, (FLIGHT,))
    evolved = replace(written_before, schemas=(FIRST, second))
    assert newest_schema(evolved, (DELAY,)) == schema_of(1, evolved, (DELAY,)) == second
    assert schema_of(0, evolved, (DELAY,)) == FIRST
    with pytest.raises(KeyError, match="no version 2"):
        schema_of(2, evolved, ())
