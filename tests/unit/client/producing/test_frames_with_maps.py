"""Maps in frames of pandas and Polars, neither of which has a type for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from smq.producing.encoding.batch_encoder import BatchEncoder
from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Column, Topic, TopicSpec

COLUMNS = (
    Column("id", "int64", nullable=True),
    Column("counts", "map<string, int32>", nullable=True),
    Column("times", "list<map<string, timestamp[us, UTC]>>", nullable=True),
    Column("inner", "struct<of: map<int8, list<int64>>>", nullable=True),
)
ENCODER = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=64, schema=COLUMNS)))


def checked(frame: Any) -> pa.Table:
    """The frame as ``write`` takes it."""
    return ENCODER.check(ENCODER.to_table(frame))[0]


@pytest.mark.parametrize(
    "value",
    [{"a": 1, "b": 2}, [("a", 1), ("b", 2)], (["a", 1], ["b", np.int16(2)]), {"a": 1.0, "b": True + 1}],
    ids=["dict", "pairs", "numpy", "whole float"],
)
def test_a_dictionary_or_pairs_of_pandas_are_a_map(value: object) -> None:
    frame = pd.DataFrame({"counts": [value, None, {}, float("nan"), pd.NA], "id": range(5)}).loc[[0, 2, 1, 3, 4]]

    table = checked(frame)

    assert table.schema.names == ["counts", "id"]
    assert table["counts"].to_pylist() == [[("a", 1), ("b", 2)], [], None, None, None]
    assert table["id"].to_pylist() == [0, 2, 1, 3, 4]


def test_maps_with_different_keys_get_no_keys_of_one_another() -> None:
    assert checked(pd.DataFrame({"counts": [{"a": 1}, {"b": None}]}))["counts"].to_pylist() == [
        [("a", 1)],
        [("b", None)],
    ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": 1.5}, r"column counts, row 1: the value of 'a': 1\.5 \(double\) does not fit int32"),
        ({"a": "1"}, "column counts, row 1: the value of 'a': '1' .* text is not a number"),
        ({1: 1}, "column counts, row 1: a key: 1 .* does not fit string"),
        ([("a", 1, 2)], "column counts, row 1: .* is no pair of a key and a value"),
        ([(None, 1)], "column counts, row 1: a key of a map may not be null"),
        ("a=1", "column counts, row 1: 'a=1' .* does not fit map"),
    ],
)
def test_what_does_not_fit_is_refused_with_column_and_row(value: object, why: str) -> None:
    with pytest.raises(SchemaMismatch, match=why):
        checked(pd.DataFrame({"counts": [{}, value]}))


def test_what_was_read_into_pandas_can_be_written_again() -> None:
    rows = pa.table(
        {
            "counts": pa.array([[("a", 1), ("a", 2)], None], ENCODER.body_schema.field("counts").type),
            "times": pa.array(
                [[[("x", datetime(2024, 1, 1, tzinfo=UTC))], []], None], ENCODER.body_schema.field("times").type
            ),
            "inner": pa.array([{"of": [(1, [2, 3])]}, None], ENCODER.body_schema.field("inner").type),
        }
    )

    assert checked(rows.to_pandas()).to_pylist() == rows.to_pylist()


def test_a_list_of_structs_of_polars_is_a_map() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"counts": [[{"key": "a", "value": 1}], None, []]})

    assert checked(frame)["counts"].to_pylist() == [[("a", 1)], None, []]
