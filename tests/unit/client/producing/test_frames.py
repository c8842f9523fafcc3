"""Tables of other libraries as what ``write`` and ``send`` take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from smq.producer import Producer
from smq.producing.encoding.frames import as_table
from smq_core.errors import InvalidRequest
from smq_storage.conversion.exact_cast import exact_cast
from support.in_memory.acking_engine import engine


class Stream:
    """What has the Arrow PyCapsule interface, and nothing else."""

    def __init__(self, data: pa.Table) -> None:
        self._data = data

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._data.__arrow_c_stream__(requested_schema)


class Array:
    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return self._data.__arrow_c_array__(requested_schema)


TABLE = pa.table({"value": pa.array([b"a", b"b"], pa.large_binary()), "key": pa.array([b"k", None], pa.binary_view())})


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"value": [b"a", b"b"], "key": [b"k", None]}),
        Stream(TABLE),
        Array(TABLE.to_batches()[0]),
        TABLE.to_reader(),
    ],
    ids=["pandas", "stream", "array", "reader"],
)
@pytest.mark.parametrize("method", ["write", "send"])
def test_every_kind_of_table_is_published(
    open_producer: Callable[..., Producer], frame: Any, method: str, request: pytest.FixtureRequest
) -> None:
    if "reader" in request.node.name:
        frame = TABLE.to_reader()  # a reader is read once
    producer = open_producer(3600.0)

    delivery = getattr(producer, method)(frame)

    (sub_batch,) = engine(producer).submitted
    engine(producer).answer(sub_batch)
    assert (sub_batch.batch["value"].to_pylist(), sub_batch.batch["key"].to_pylist()) == ([b"a", b"b"], [b"k", None])
    assert len(delivery.result(5)) == 2


def test_only_a_named_index_of_pandas_is_a_column() -> None:
    frame = pd.DataFrame({"value": [1.5, float("nan"), 2.0]})
    shuffled = frame.loc[[2, 0, 1]]  # its index is no range

    assert as_table(shuffled).to_pydict() == {"value": [2.0, 1.5, None]}
    assert as_table(frame.set_index(pd.Index(["a", "b", "c"], name="name"))).to_pydict() == {
        "value": [1.5, None, 2.0],
        "name": ["a", "b", "c"],
    }
    assert as_table(frame).schema.metadata is None


def test_every_named_level_of_an_index_is_a_column() -> None:
    frame = pd.DataFrame({"value": [1, 2, 3]})
    by_name = pd.MultiIndex.from_tuples([("a", 1), ("a", 1), ("b", 2)], names=["name", None])

    ranged = frame.rename_axis(index="id")
    assert as_table(ranged).to_pydict() == {"value": [1, 2, 3], "id": [0, 1, 2]}
    assert as_table(frame.set_index(by_name)).to_pydict() == {"value": [1, 2, 3], "name": ["a", "a", "b"]}
    with pytest.raises(InvalidRequest, match="the index of the frame is named 'value', as another column is"):
        as_table(frame.rename_axis(index="value"))
    assert list(ranged.columns) == ["value"], "the program's frame is as it was"


def test_categories_of_polars_are_text() -> None:
    polars = pytest.importorskip("polars")
    for type_ in (polars.Categorical, polars.Enum(["a", "b"])):
        frame = polars.DataFrame({"name": polars.Series(["b", None, "a"], dtype=type_)})
        found = exact_cast(as_table(frame).column("name"), pa.string())
        assert found.to_pylist() == ["b", None, "a"]


def test_python_objects_of_polars_are_refused() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"value": polars.Series([object()], dtype=polars.Object)})

    with pytest.raises(InvalidRequest, match="Python objects in the column value"):
        as_table(frame)


def test_a_frame_that_is_no_table_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not list"):
        as_table([1])
    with pytest.raises(InvalidRequest, match=r"the DataFrame cannot become an Arrow table: [^(].*column mixed"):
        as_table(pd.DataFrame({"mixed": [1, "a", b"x"]}))


def test_a_table_has_its_headers_in_a_column(open_producer: Callable[..., Producer]) -> None:
    with pytest.raises(InvalidRequest, match="columns of these names"):
        open_producer(3600.0).send(pd.DataFrame({"value": [b"a"]}), headers=[("a", b"")])  # type: ignore[call-overload]


def test_polars_frames_are_tables() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {"name": ["a", None], "tags": [["x"], []]}, schema_overrides={"tags": polars.List(polars.Categorical)}
    )

    assert as_table(frame).to_pydict() == {"name": ["a", None], "tags": [["x"], []]}


def test_a_lazy_frame_of_polars_is_refused_with_what_to_call() -> None:
    with pytest.raises(InvalidRequest, match=r"not LazyFrame: call its collect\(\) first"):
        as_table(pl.DataFrame({"a": [1]}).lazy())
