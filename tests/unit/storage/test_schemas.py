"""The types that a topic's columns can have."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from smq_core.model.entities import Column
from smq_storage.chunks.column_types import MAX_DEPTH, arrow_type, as_declared, stored_field
from smq_storage.chunks.schemas import chunk_schema


@pytest.mark.parametrize("name", ["flot64", "int", "decimal128(50, 1)", "decimal128(3, 4)", "list<nope>", "", "map"])
def test_unknown_types_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ValueError, match=r"float64|precision"):
        arrow_type(name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("list<int8, int8>", "list<type>"),
        ("map<string>", "map<type, type>"),
        ("map<list<int8>, int8>", "cannot be the key of a map"),
        ("struct<a: int8, b: decimal256(9, 10)>", "the scale at most the precision"),
        ("struct<int8>", "struct<name: type, name: type>, not 'int8'"),
        ("struct<a: int8, a: int8>", "a name of its own"),
        ("list<struct<a: int8, A: int8>>", "not only in another case"),
        ("list<int8>, list<int8>", "there is no type"),
        ("list<" * (MAX_DEPTH + 1) + "int8" + ">" * (MAX_DEPTH + 1), "deeper than 10 levels"),
    ],
)
def test_nested_types_that_do_not_exist_are_refused(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        arrow_type(name)


def test_nested_types_have_the_types_of_their_parts() -> None:
    berlin = pa.timestamp("ms", "Europe/Berlin")

    assert arrow_type("struct<a: int8, b:map<string, list<timestamp[ms, Europe/Berlin]>>>") == pa.struct(
        [("a", pa.int8()), ("b", pa.map_(pa.string(), pa.list_(berlin)))]
    )


def test_readers_get_the_declared_types_of_columns_that_are_stored_as_others() -> None:
    schema = chunk_schema((Column("a", "list<dictionary<string>>", True), Column("b", "timestamp[s, CET]", True)))
    assert (schema.field("a").type, schema.field("b").type) == (pa.list_(pa.string()), pa.timestamp("ms", "CET"))
    stored = pa.Table.from_pylist(
        [{"a": ["x", None], "b": datetime(2026, 1, 1, tzinfo=UTC)}], pa.schema([schema.field("a"), schema.field("b")])
    )
    found = as_declared(stored)

    assert found.schema.types == [arrow_type("list<dictionary<string>>"), arrow_type("timestamp[s, CET]")]
    assert found["a"].to_pylist() == [["x", None]]
    assert as_declared(found) is found


def test_what_is_stored_as_it_is_declared_says_nothing_else() -> None:
    for name in ("int8", "timestamp[us, UTC]", "struct<a: decimal256(50, 2)>"):
        assert stored_field("a", name, True).metadata is None
