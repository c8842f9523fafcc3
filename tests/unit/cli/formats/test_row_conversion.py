"""Rows of files are converted to a topic's columns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from smq.cli.files.column_matching import match_columns, require_known_columns, to_messages
from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Column
from smq_storage.chunks.schemas import HEADERS, TIMESTAMP

COLUMNS = [Column("tailnum", "string", nullable=True), Column("distance", "int32"), Column("delay", "float64", True)]


def test_columns_are_matched_by_name_and_cast_in_the_topics_order() -> None:
    table = pa.table({"distance": pa.array([1.0, 2.0]), "extra": [1, 2], "tailnum": ["N1", None]})

    fitted = match_columns(table, COLUMNS)

    assert fitted.schema.names == ["tailnum", "distance", "delay"]
    assert fitted.schema.types == [pa.string(), pa.int32(), pa.float64()]
    assert fitted.to_pylist() == [
        {"tailnum": "N1", "distance": 1, "delay": None},
        {"tailnum": None, "distance": 2, "delay": None},
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([1.5]), "distance (int32): row 1: 1.5 (double) does not fit int32: the value would change"),
        (pa.array([1 << 40]), "distance (int32): row 1: 1099511627776 (int64) does not fit"),
        (pa.array(["far"]), "distance (int32): row 1: 'far' (string) does not fit int32: text is not a number"),
        (pa.array([None], pa.int32()), "distance (int32): row 1: it may not be null, and 1 rows are"),
        (pa.array([[1]]), "distance (int32): row 1: [1] (list"),
    ],
)
def test_a_value_that_would_be_changed_by_the_cast_is_refused(values: pa.Array, words: str) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        match_columns(pa.table({"distance": values}), COLUMNS)

    assert words in caught.value.message


def test_every_column_that_does_not_fit_is_reported_together() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        match_columns(pa.table({"delay": ["late"]}), COLUMNS)

    assert "distance (int32): it is missing" in caught.value.message
    assert "delay (float64): row 1: 'late' (string)" in caught.value.message


def test_dictionary_columns_are_unpacked() -> None:
    table = pa.table({"tailnum": pa.array(["N1", "N1"]).dictionary_encode(), "distance": [1, 2]})

    assert match_columns(table, COLUMNS)["tailnum"].to_pylist() == ["N1", "N1"]


def test_times_and_headers_of_messages_that_were_consumed_are_kept() -> None:
    table = pa.table(
        {
            "distance": [1],
            "timestamp": pa.array([7], TIMESTAMP),
            "headers": pa.array([[{"key": "a", "value": b"b"}]], HEADERS),
        }
    )

    fitted = match_columns(table, COLUMNS)

    assert fitted["timestamp"].cast(pa.int64()).to_pylist() == [7]
    assert fitted["headers"].to_pylist() == [[{"key": "a", "value": b"b"}]]


def test_without_a_schema_a_row_becomes_a_json_object() -> None:
    made = to_messages(pa.table({"id": [7], "name": ["x"]}), "id")

    assert made["key"].to_pylist() == [b"7"]
    assert json.loads(made["value"][0].as_py()) == {"id": 7, "name": "x"}


def test_a_value_column_is_the_message_itself() -> None:
    made = to_messages(pa.table({"key": ["k", None], "value": ["v", None]}), None)

    assert made.to_pylist() == [{"key": b"k", "value": b"v"}, {"key": None, "value": None}]


def test_a_key_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="no column 'nope' to take the key from; there are value"):
        to_messages(pa.table({"value": ["v"]}), "nope")


def test_a_row_with_bytes_and_times_becomes_the_json_that_consume_writes() -> None:
    at = pa.array([1], pa.timestamp("us", "UTC"))
    made = to_messages(pa.table({"raw": [b"\xff"], "text": [b"x"], "at": at}), None)

    assert json.loads(made["value"][0].as_py()) == {
        "raw_base64": "/w==",
        "text": "x",
        "at": "1970-01-01T00:00:00.000001Z",
    }


@pytest.mark.parametrize(
    ("names", "columns", "key", "says"),
    [
        (["distance", "tailnun"], COLUMNS, None, r"no column tailnun \(did you mean tailnum\?\).*--ignore-unknown"),
        (["key", "value", "headers", "color"], [], None, "no column color. Its columns are key, value"),
        (["key", "id", "value"], [], "id", "no column key"),
    ],
)
def test_columns_that_the_topic_does_not_have_are_refused(
    names: list[str], columns: list[Column], key: str | None, says: str
) -> None:
    with pytest.raises(SchemaMismatch, match=says):
        require_known_columns(names, columns, key)


def test_columns_of_the_topic_and_of_consumed_messages_are_known() -> None:
    require_known_columns(["id", "color"], [])  # each row becomes an object
    require_known_columns(["_segment", "_offset", "partition", "timestamp", "appended", "distance", "headers"], COLUMNS)


def test_a_column_that_occurs_twice_is_refused() -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["distance", "distance"])

    for convert in (lambda: match_columns(twice, COLUMNS), lambda: to_messages(twice, None)):
        with pytest.raises(SchemaMismatch, match="'distance' occurs more than once"):
            convert()


@pytest.mark.parametrize(
    ("column", "values"),
    [("headers", pa.array(["text"])), ("timestamp", pa.array(["noon"])), ("timestamp", pa.array([1.5]))],
)
def test_headers_and_times_that_do_not_fit_are_refused_and_not_left_out(column: str, values: pa.Array) -> None:
    with pytest.raises(SchemaMismatch, match=f"{column}: row 8: "):
        match_columns(pa.table({"distance": [1], column: values}), COLUMNS, first_row=7)
    with pytest.raises(SchemaMismatch, match=f"column {column}: row 8: "):
        to_messages(pa.table({"value": [b"x"], column: values}), None, first_row=7)


def test_times_of_other_units_are_kept() -> None:
    table = pa.table({"value": [b"x"], "timestamp": pa.array([1], pa.timestamp("s"))})

    assert to_messages(table, None)["timestamp"].cast(pa.int64()).to_pylist() == [1_000_000]
