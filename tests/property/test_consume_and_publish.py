"""What `smq consume` writes as JSON or CSV, `smq publish` stores as the same messages again."""

from __future__ import annotations

import io
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smq.cli.files.column_matching import match_columns, require_known_columns, to_messages
from smq.cli.files.formats import OutputFormat
from smq.cli.files.sinks import Shown, open_sink
from smq.cli.files.sources import InputFormat, tables
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq_core.errors import InvalidRequest
from smq_core.model.entities import Column, Topic, TopicSpec
from smq_storage.chunks.column_types import arrow_type
from smq_storage.chunks.schemas import HEADERS, TIMESTAMP

some_bytes = st.one_of(st.none(), st.binary(max_size=6), st.text(max_size=6).map(str.encode))
headers = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=4), some_bytes), max_size=3))
zoned = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=None))
messages = st.tuples(some_bytes, some_bytes, headers, zoned)
small = st.integers(-128, 127)

COLUMNS = {
    "bool": st.booleans(),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint64": st.integers(0, (1 << 64) - 1),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "decimal128(20, 10)": st.decimals(-(10**9), 10**9, places=10).map(lambda d: d + Decimal(0)),
    "string": st.text(max_size=6),
    "binary": st.binary(max_size=6),
    "date32": st.dates(),
    "timestamp[us]": zoned,
    "timestamp[us, UTC]": zoned,
    "list<string>": st.lists(st.one_of(st.none(), st.text(max_size=4)), max_size=3),
    "list<binary>": st.lists(st.one_of(st.none(), st.binary(max_size=4)), max_size=3),
    "list<float64>": st.lists(st.floats(), max_size=3),
    "list<timestamp[us, UTC]>": st.lists(zoned, max_size=2),
    "timestamp[s]": zoned.map(lambda at: at.replace(microsecond=0)),
    "timestamp[ms, Europe/Berlin]": zoned.map(lambda at: at.replace(microsecond=0)),
    "timestamp[ns]": st.integers(-(1 << 62), 1 << 62),
    "list<timestamp[ns, Asia/Kolkata]>": st.lists(st.integers(-(1 << 62), 1 << 62), max_size=2),
    "time": st.times(),
    "time32[ms]": st.times().map(lambda at: at.replace(microsecond=0)),
    "time64[ns]": st.integers(0, 86_400 * 10**9 - 1),
    "decimal256(60, 10)": st.decimals(-(10**20), 10**20, places=10).map(lambda d: d + Decimal(0)),
    "dictionary<string>": st.text(max_size=3),
    "struct<a: int8, b: binary>": st.fixed_dictionaries({"a": small, "b": st.one_of(st.none(), st.binary(max_size=4))}),
    "map<string, int8>": st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), small)), max_size=3),
    "map<binary, list<decimal128(5, 2)>>": st.lists(
        st.tuples(st.binary(max_size=3), st.lists(st.decimals(-99, 99, places=2), max_size=2)), max_size=2
    ),
}
# CSV has only bytes that are text, except in structs.
ONLY_IN_JSON = ("binary", "list<binary>", "map<binary, list<decimal128(5, 2)>>")
TYPED = [Column(f"c{i}", name, nullable=True) for i, name in enumerate(COLUMNS)]
rows = st.tuples(headers, zoned, *(st.one_of(st.none(), strategy) for strategy in COLUMNS.values()))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json") / "messages.json"


def published_again(
    path: Path, table: pa.Table, columns: list[Column], meta: bool, form: OutputFormat = OutputFormat.JSON
) -> pa.Table:
    """The table as `consume` writes it to the file, and as `publish` reads it."""
    with open_sink(form, path, Shown(meta, headers=True)) as sink:
        sink.write(table.slice(0, 1), "events-0-8-0", 40)
        sink.write(table.slice(1), "events-0-8-0", 41)
    text = path.read_bytes()
    if form is OutputFormat.JSON:
        assert text.count(b"\n") == table.num_rows
    found = pa.concat_tables(tables("-", InputFormat(form.value), columns, io.BytesIO(text)), promote_options="default")
    require_known_columns(found.column_names, columns)
    made = match_columns(found, columns) if columns else to_messages(found, None)
    encoder = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=8, schema=tuple(columns))))
    return encoder.check(made)[0]


def check_same(again: pa.Table, table: pa.Table, names: list[str]) -> None:
    for name in names:
        found = again[name] if name in again.column_names else pa.nulls(table.num_rows, table[name].type)
        # As text, because a NaN does not equal itself.
        assert str(found.to_pylist()) == str(table[name].to_pylist()), name


def consumed(body: dict[str, pa.Array], found: list[object], times: list[object]) -> pa.Table:
    count = len(found)
    at = pa.array(times, pa.timestamp("us")).cast(TIMESTAMP)
    system = {"partition": pa.array([3] * count, pa.int32()), "timestamp": at, "appended": at}
    return pa.table({**system, **body, "headers": pa.array(found, HEADERS)})


@settings(max_examples=200, deadline=None)
@given(st.lists(messages, min_size=1, max_size=5), st.booleans())
@example(
    [(b"k", None, None, datetime(2024, 1, 1)), (b"k", b"", [("h", b"\xff"), ("h", None)], datetime(2024, 1, 1))], True
)
def test_messages(path: Path, found: list[tuple[object, ...]], meta: bool) -> None:
    keys, values, all_headers, times = zip(*found, strict=True)
    table = consumed(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}, list(all_headers), list(times)
    )

    again = published_again(path, table, [], meta)

    check_same(again, table, ["key", "value", "headers", *(["timestamp"] if meta else [])])


@settings(max_examples=200, deadline=None)
@given(st.lists(rows, min_size=1, max_size=4), st.booleans())
def test_rows_of_a_topic_with_a_schema(path: Path, found: list[tuple[object, ...]], meta: bool) -> None:
    all_headers, times, *values = zip(*found, strict=True)
    body = {c.name: pa.array(column, arrow_type(c.type)) for c, column in zip(TYPED, values, strict=True)}
    table = consumed(body, list(all_headers), list(times))

    again = published_again(path, table, TYPED, meta)

    check_same(again, table, [*body, "headers", *(["timestamp"] if meta else [])])


texts = st.one_of(st.none(), st.text(max_size=6).map(str.encode), st.sampled_from([b"NA", b"null", b"00712", b" "]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(texts, texts, headers, zoned), min_size=1, max_size=5), st.booleans())
def test_messages_in_csv(path: Path, found: list[tuple[object, ...]], meta: bool) -> None:
    keys, values, all_headers, times = zip(*found, strict=True)
    body = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    table = consumed(body, list(all_headers), list(times))

    try:
        again = published_again(path, table, [], meta, OutputFormat.CSV)
    except InvalidRequest as error:
        assert "bytes that are not text" in str(error)  # of a header
        return
    check_same(again, table, ["key", "value", "headers", *(["timestamp"] if meta else [])])


@settings(max_examples=100, deadline=None)
@given(st.lists(rows, min_size=1, max_size=4), st.booleans(), st.integers(0, len(TYPED) - 1))
def test_rows_in_csv(path: Path, found: list[tuple[object, ...]], meta: bool, only: int) -> None:
    _, times, *values = zip(*found, strict=True)
    columns = [c for c in TYPED if c.type not in ONLY_IN_JSON]
    body = {c.name: pa.array(column, arrow_type(c.type)) for c, column in zip(TYPED, values, strict=True)}
    kept = columns if meta or TYPED[only] not in columns else [TYPED[only]]  # one column has empty lines
    table = consumed({c.name: body[c.name] for c in kept}, [None] * len(found), list(times))

    again = published_again(path, table, kept, meta, OutputFormat.CSV)

    check_same(again, table, [c.name for c in kept])


def test_bytes_that_have_no_field_are_refused(path: Path) -> None:
    table = pa.table({"raw": [b"\xff"], "raw_base64": ["x"]})

    with pytest.raises(InvalidRequest, match="use --format parquet"), open_sink(OutputFormat.JSON, path) as sink:
        sink.write(table, "s", 0)
