"""JSON lines of a topic with a schema: what each type takes, and what is refused with its line."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from smq.cli.files.sources import InputFormat, Reading, tables
from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Column
from smq_storage.json_lines import columns as json_columns
from smq_storage.json_lines.rows import json_line, python_rows

TYPES = {
    "i": "int32",
    "big": "uint64",
    "f": "float64",
    "single": "float32",
    "flag": "bool",
    "name": "string",
    "raw": "binary",
    "price": "decimal128(5, 2)",
    "day": "date32",
    "at": "timestamp[us, UTC]",
    "local": "timestamp[us]",
    "tags": "list<string>",
    "blobs": "list<binary>",
}
ALL = [Column(name, type_, nullable=True) for name, type_ in TYPES.items()]
FAST = [Column("i", "int32"), Column("single", "float32", nullable=True), Column("name", "string", nullable=True)]


def read(text: str, columns: list[Column] = ALL) -> list[dict[str, Any]]:
    return [
        row for table in tables("-", InputFormat.JSON, columns, io.BytesIO(text.encode())) for row in table.to_pylist()
    ]


@pytest.mark.parametrize(
    ("name", "written", "stored"),
    [
        ("i", "7", 7),
        ("i", "7.0", 7),
        ("i", "1e3", 1000),
        ("big", "18446744073709551615", (1 << 64) - 1),
        ("f", "1", 1.0),
        ("f", "0.1", 0.1),
        ("f", '"Infinity"', float("inf")),
        ("single", "0.1", float(np.float32(0.1))),
        ("flag", "true", True),
        ("name", '"1"', "1"),
        ("raw", '"é"', "é".encode()),
        ("raw_base64", '"/w=="', b"\xff"),
        ("price", "1.50", Decimal("1.50")),
        ("price", '"1.5"', Decimal("1.50")),
        ("price", "7", Decimal("7.00")),
        ("day", '"2024-05-01"', date(2024, 5, 1)),
        ("at", '"2024-05-01T12:00:00.000001+02:00"', datetime(2024, 5, 1, 10, microsecond=1, tzinfo=UTC)),
        ("at", '"2024-05-01T12:00:00"', datetime(2024, 5, 1, 12, tzinfo=UTC)),
        ("local", '"2024-05-01T12:00:00"', datetime(2024, 5, 1, 12)),
        ("tags", '["a", null]', ["a", None]),
        ("blobs_base64", '["/w==", null, ""]', [b"\xff", None, b""]),
        ("name", "null", None),
    ],
)
def test_each_type_takes_what_json_has_for_it(name: str, written: str, stored: object) -> None:
    (row,) = read(f'{{"{name}": {written}}}')

    assert row == {**dict.fromkeys(TYPES), name.removesuffix("_base64"): stored}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"i": 1.5}', r"line 2: column i: 1\.5 \(double\) does not fit int32: the value would change"),
        ('{"i": "7"}', "line 2: column i: '7' .string. does not fit int32: text is not a number"),
        ('{"i": true}', "line 2: column i: True"),
        ('{"i": 1e30}', "line 2: column i: "),
        ('{"i": 2147483648}', "line 2: column i: 2147483648"),
        ('{"f": "1.5"}', "line 2: column f: '1.5'"),
        ('{"f": 1e999}', "line 2: column f: 1E.999 is out of the range of double"),
        ('{"single": 1e39}', "line 2: column single: 1E.39 is out of the range of float"),
        ('{"flag": 1}', "line 2: column flag: 1"),
        ('{"name": 5}', "line 2: column name: 5 .* does not fit string"),
        ('{"raw": 5}', "line 2: column raw: 5 .* does not fit binary"),
        ('{"raw_base64": "no"}', "line 2: raw_base64 must be base64"),
        ('{"raw": "x", "raw_base64": "eA=="}', "line 2: it has raw and raw_base64"),
        ('{"name_base64": "eA=="}', "line 2: the topic has no column name_base64"),
        ('{"price": 1.505}', "line 2: column price: Decimal.'1.505'."),
        ('{"price": "much"}', "line 2: column price: 'much' is no decimal number"),
        ('{"day": 5}', "line 2: column day: 5"),
        ('{"day": "2024-05-01T12:00:00"}', "line 2: column day: .* is no date"),
        ('{"at": 5}', "line 2: at must be a time"),
        ('{"local": "2024-05-01T12:00:00Z"}', "line 2: column local: .* it has a time zone"),
        ('{"tags": "a"}', "line 2: column tags: 'a' .string. does not fit list"),
        ('{"tags": [1]}', "line 2: column tags: 1"),
        ('{"i": 1, "i": 2}', "line 2: the field i occurs twice"),
        ('{"i": 1, "more": 2}', "line 2: the topic has no column more; it has i, big"),
        ("[1]", "line 2: it is no JSON object"),
    ],
)
def test_what_a_type_does_not_take_is_refused_with_its_line(line: str, says: str) -> None:
    with pytest.raises(SchemaMismatch, match=says):
        read('{"i": 1}\n' + line + "\n")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"name": "x"}', "line 3: column i: it may not be null"),
        ('{"i": null}', "line 3: column i: it may not be null"),
        ('{"i": 1, "single": 1e39}', "line 3: column single: 1E.39 is out of the range"),
        ('{"i": 1, "more": 2}', "line 3: the topic has no column more"),
        ('{"i": "1"}', "line 3: column i: '1'"),
    ],
)
def test_blocks_that_arrow_reads_are_refused_in_the_same_way(line: str, says: str) -> None:
    assert read('{"i": 1, "single": 0.1, "name": "x"}', FAST) == [
        {"i": 1, "single": float(np.float32(0.1)), "name": "x"}
    ]
    with pytest.raises(SchemaMismatch, match=says):
        read('{"i": 1}\n\n' + line + "\n", FAST)


def test_messages_have_headers_and_times() -> None:
    line = '{"i": 1, "headers": {"h": "1"}, "timestamp": "1970-01-01T00:00:00.000005Z", "_offset": 3, "partition": 1}'

    first, second = read(line + '\n{"i": 2}\n', FAST)

    assert (first["i"], first["headers"], first["timestamp"].microsecond) == (1, [{"key": "h", "value": b"1"}], 5)
    assert (second["i"], second["headers"], second["timestamp"]) == (2, None, None)


def test_nanoseconds_are_written_as_text_and_read_again() -> None:
    kind = pa.timestamp("ns", "Europe/Berlin")
    at, times = pa.array([1_700_000_000_000_000_001], kind), pa.array([[1]], pa.list_(pa.time64("ns")))
    table = pa.table({"at": at, "times": times})
    inside = pa.array([{"m": [("a b", [1, None])]}, None], pa.struct([("m", pa.map_(pa.string(), pa.list_(kind)))]))

    (row,) = python_rows(table)

    assert row == {"at": "2023-11-14T22:13:20.000000001Z", "times": ["00:00:00.000000001"]}
    columns = [Column("at", "timestamp[ns, Europe/Berlin]"), Column("times", "list<time64[ns]>")]
    (again,) = tables("-", InputFormat.JSON, columns, io.BytesIO(json_line(row)))
    assert again["at"].cast(pa.int64()).to_pylist() == [1_700_000_000_000_000_001]
    assert again["times"].equals(table["times"])
    assert python_rows(pa.table({"x": inside})) == [
        {"x": {"m": [("a b", ["1970-01-01T00:00:00.000000001Z", None])]}},
        {"x": None},
    ]


@pytest.mark.parametrize(
    ("column", "cell", "stored"),
    [
        ("list<int8>", '"[1, null]"', [1, None]),
        ("struct<a: int8>", '"{""a"": 1}"', {"a": 1}),
        ("map<string, int8>", '"{""k"": 1}"', [("k", 1)]),
        ("decimal256(50, 2)", "1.5", Decimal("1.50")),
        ("time32[s]", "12:30:00", time(12, 30)),
    ],
)
def test_cells_of_csv_have_json_for_what_has_values_inside(column: str, cell: str, stored: object) -> None:
    text = f"c,d\n{cell},1\n,2\n".encode()
    (table,) = tables("-", InputFormat.CSV, [Column("c", column, nullable=True)], io.BytesIO(text))

    assert table["c"].to_pylist() == [stored, None]


def test_a_cell_that_does_not_fit_is_refused_with_its_row() -> None:
    columns = [Column("c", "struct<a: int8>", nullable=True)]
    text = b'c\n"{""a"": 1}"\n"{""a"": 300}"\n'

    with pytest.raises(SchemaMismatch, match="row 2: column c: field a: 300 does not fit int8"):
        list(tables("-", InputFormat.CSV, columns, io.BytesIO(text)))


SIMPLE = [Column("a", "int64", nullable=True), Column("b", "string", nullable=True)]


@pytest.mark.parametrize(
    "line", [b"null", b"  null ", b"1", b"[]", b'"x"', b"true", b'{"a":1} null', b'{"a":1}{"a":2}']
)
@pytest.mark.parametrize("before", [b"", b'{"a": 1}\n', b'\n{"a": 1}\n'])
@pytest.mark.parametrize("after", [b"", b'\n{"a": 2}\n'])
def test_a_line_that_is_no_object_is_refused_wherever_it_is(line: bytes, before: bytes, after: bytes) -> None:
    number = before.count(b"\n") + 1

    with pytest.raises(SchemaMismatch, match=f"^line {number}: "):
        list(tables("-", InputFormat.JSON, SIMPLE, io.BytesIO(before + line + after)))


@pytest.mark.parametrize("text", ['{"a": 1}\n{"a": 2}\n', '{"a": 1}\n{"a": 2}', '{"a": 1}\r\n{"a": 2}\r\n'])
def test_usual_lines_are_counted_without_patterns(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for pattern in ("_LINE", "_OTHER_LINE"):
        monkeypatch.setattr(json_columns, pattern, None)

    assert read(text, SIMPLE) == [{"a": 1, "b": None}, {"a": 2, "b": None}]


def test_indented_and_empty_lines_are_read() -> None:
    assert read('\n  {"a": 1}\n\n\t{"a": 2}\n \n', SIMPLE) == [{"a": 1, "b": None}, {"a": 2, "b": None}]


def test_an_object_on_several_lines_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match=r"^line 1: "):
        list(tables("-", InputFormat.JSON, SIMPLE, io.BytesIO(b'{"a":\n1}\n')))


def test_fields_that_the_topic_does_not_have_are_left_out_on_request() -> None:
    text = b'{"a": 1, "c": {}}\n{"a": 2, "b": "x"}\n'

    with pytest.raises(SchemaMismatch, match="line 1: the topic has no column c"):
        list(tables("-", InputFormat.JSON, SIMPLE, io.BytesIO(text)))
    (found,) = tables("-", InputFormat.JSON, SIMPLE, io.BytesIO(text), Reading(ignore_unknown=True))
    assert found.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
