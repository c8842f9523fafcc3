"""The claim checks of large values: found in any shape of table, and read with the error that says what is wrong."""

import pyarrow as pa
import pytest

from smq_core.errors import DataLost, InvalidRequest
from smq_storage.catalog import paths
from smq_storage.chunks.schemas import HEADERS, chunk_schema
from smq_storage.object_store.store import Store, open_store
from smq_storage.uploads.large_values import (
    HEADER,
    LargeValue,
    find_large_values,
    has_reserved_header,
    read_large_value,
    without_reserved_header,
)

LARGE = LargeValue.of("p-0-1.value", b"large")
CHECK = LARGE.header()


def table(*messages: tuple[bytes | None, list[tuple[str, bytes | None]] | None]) -> pa.Table:
    values, headers = zip(*messages, strict=True)
    columns = {
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(
            [None if it is None else [{"key": k, "value": v} for k, v in it] for it in headers], HEADERS
        ),
    }
    return pa.table(columns)


MIXED = table(
    (b"inline", None),
    (None, [CHECK]),
    (None, None),
    (None, [("a", b"1"), CHECK, ("b", None)]),
    (b"inline", [CHECK]),
    (None, [(HEADER, b"of another program")]),
    (None, [(HEADER, None)]),
    (b"", []),
    (None, [("a", b"1")]),
    (None, [CHECK]),
)  # fmt: skip
FOUND = [1, 3, 9]


def test_rows_with_large_values_are_found() -> None:
    assert find_large_values(MIXED) == dict.fromkeys(FOUND, LARGE)
    assert not find_large_values(MIXED.drop_columns("value"))
    assert not find_large_values(table((b"v", None), (None, None)))
    assert not find_large_values(MIXED.slice(0, 0))


@pytest.mark.parametrize("start", range(10))
def test_they_are_found_in_slices_and_chunks(start: int) -> None:
    expected = [row - start for row in FOUND if start <= row < start + 4]
    assert list(find_large_values(MIXED.slice(start, 4))) == expected
    joined = pa.concat_tables([MIXED.slice(start), MIXED.slice(0, start), MIXED])
    order = [*range(start, 10), *range(start), *range(10)]
    assert list(find_large_values(joined)) == [at for at, row in enumerate(order) if row in FOUND]


def test_a_column_with_the_reserved_header_is_noticed() -> None:
    assert has_reserved_header(MIXED.column("headers"))
    assert has_reserved_header(MIXED.column("headers").slice(9).combine_chunks())
    assert not has_reserved_header(MIXED.column("headers").slice(7, 2))
    assert not has_reserved_header(pa.nulls(3, chunk_schema().field("headers").type))


def hiding_table() -> pa.Table:
    """Rows 0 and 2 have the headers of ``LARGE``; the lists of rows 1 and 3 are null, but have items all the same."""
    items = pa.array([dict(zip(("key", "value"), CHECK, strict=True))] * 5, HEADERS.value_type)
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4, 5], pa.int32()), items, type=HEADERS, mask=pa.array([False, True, False, True])
    )
    return pa.table({"value": pa.nulls(4, pa.binary()), "headers": headers})


@pytest.mark.parametrize("start", range(5))
def test_items_that_null_lists_hide_are_no_headers(start: int) -> None:
    sliced = hiding_table().slice(start)
    assert list(find_large_values(sliced)) == [row - start for row in (0, 2) if row >= start]
    assert not has_reserved_header(hiding_table().column("headers").slice(3))


def test_null_headers_are_none() -> None:
    items = pa.array([{"key": "a", "value": b""}, dict(zip(("key", "value"), CHECK, strict=True))], HEADERS.value_type)
    nulled = pa.StructArray.from_arrays(
        [items.field(0), items.field(1)], fields=list(HEADERS.value_type), mask=pa.array([True, False])
    )
    headers = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), nulled, type=HEADERS)
    row = headers[0].as_py()
    assert find_large_values(pa.table({"value": pa.nulls(1, pa.binary()), "headers": headers})) == {0: LARGE}
    assert without_reserved_header(row) == [None]


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def read(store: Store, large: LargeValue = LARGE) -> bytes:
    return read_large_value(store, "uid", large, "s", 7)


def test_the_value_is_read(store: Store) -> None:
    store.put(paths.large_value("uid", LARGE.name), b"large")
    assert read(store) == b"large"


@pytest.mark.parametrize(("data", "what"), [(None, "is gone"), (b"Large", "was altered"), (b"", "was altered")])
def test_a_value_that_is_not_what_was_written_is_lost(store: Store, data: bytes | None, what: str) -> None:
    if data is not None:
        store.put(paths.large_value("uid", LARGE.name), data)
    with pytest.raises(DataLost, match=f"message 7 of s .*_large_values/uid/p-0-1.value {what}") as lost:
        read(store)
    assert (lost.value.segment, lost.value.start, lost.value.stop) == ("s", 7, 8)
    assert lost.value.path == "_large_values/uid/p-0-1.value"


def test_a_claim_check_leads_nowhere_else(store: Store) -> None:
    with pytest.raises(DataLost, match="the name of a large value"):
        read(store, LargeValue.of("../../_format.json", b""))


def test_a_producers_id_never_makes_an_invalid_name() -> None:
    for producer in ("p", "ns/p", "ü", ".", "x" * 300):
        name = paths.large_value_name(producer, (1 << 64) - 1, "0" * 32)
        assert paths.large_value("uid", name) == f"_large_values/uid/{name}"
    with pytest.raises(InvalidRequest):
        paths.large_value("uid", "a.parquet")
