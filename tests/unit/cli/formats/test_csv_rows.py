"""CSV for `smq publish`: nothing is guessed, and what is wrong has its row and column."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from smq.cli.files import blocks
from smq.cli.files.column_matching import to_messages
from smq.cli.files.csv_rows import DEFAULT_DIALECT, CsvDialect, read_csv
from smq_core.errors import InvalidRequest, SmqError
from smq_core.model.entities import Column


def read(
    text: bytes, columns: Sequence[Column] = (), key: str | None = None, dialect: CsvDialect = DEFAULT_DIALECT
) -> list[dict[str, Any]]:
    return [row for table in read_csv(io.BytesIO(text), columns, key, dialect) for row in table.to_pylist()]


def column(type_: str, *cells: str) -> list[Any]:
    """The values of cells in a column of this type."""
    text = "c,other\n" + "".join(f"{cell},x\n" for cell in cells)
    return [row["c"] for row in read(text.encode(), [Column("c", type_, nullable=True)])]


WORDS = [
    "NA",
    "null",
    "nan",
    "n/a",
    "NULL",
    "None",
    "00712",
    "12345678901234567890",
    "1e5",
    "true",
    "2024-01-01",
    " x ",
]


def test_text_of_a_topic_without_a_schema_stays_the_text_it_is() -> None:
    text = "key,value\n" + "".join(f"{word},{word}\n" for word in WORDS)

    assert read(text.encode()) == [{"key": word.encode(), "value": word.encode()} for word in WORDS]
    made = to_messages(pa.concat_tables(read_csv(io.BytesIO(b"id,n\n00712,NA\n,\n"), (), "id", CsvDialect())), "id")
    assert made.to_pylist() == [
        {"key": b"00712", "value": b'{"id": "00712", "n": "NA"}'},
        {"key": None, "value": b'{"id": null, "n": null}'},
    ]


@pytest.mark.parametrize("columns", [(), (Column("value", "string"),)], ids=["plain", "typed"])
@pytest.mark.parametrize("block_bytes", [1, 1000])
def test_a_quote_that_is_never_closed_does_not_make_records_one_value(
    columns: Sequence[Column], block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block_bytes)
    with pytest.raises(InvalidRequest, match="ends inside of a quoted field, in the record that begins with '2,") as it:
        read(b'key,value\n1,"a\nb"\n2,"c""\n3,d\n', columns)
    assert "1," not in str(it.value)
    assert [row["key"] for row in read(b'key,value\n1,"a"\n2,"b"""', columns)][-1] in ("2", b"2")


def test_only_the_empty_field_without_quotes_is_null() -> None:
    assert read(b'key,value\n,""\n"",\n') == [{"key": None, "value": b""}, {"key": b"", "value": None}]
    assert read(b'value\n\n""\nx\n') == [{"value": None}, {"value": b""}, {"value": b"x"}]
    assert column("string", "NA", '""', "") == ["NA", "", None]


def test_null_is_what_the_user_says() -> None:
    found = read(b'key,value\nNA,"NA"\n,null\n', dialect=CsvDialect(null="NA"))

    assert found == [{"key": None, "value": b"NA"}, {"key": b"", "value": b"null"}]


@pytest.mark.parametrize(
    ("type_", "cell", "value"),
    [
        ("int64", "00712", 712),
        ("int64", " +7 ", 7),
        ("uint64", "18446744073709551615", 18446744073709551615),
        ("float64", "1e3", 1000.0),
        ("float64", "-inf", float("-inf")),
        ("decimal128(20, 2)", "1.50", Decimal("1.50")),
        ("bool", "True", True),
        ("bool", "0", False),
        ("date32", "2024-05-01", date(2024, 5, 1)),
        ("timestamp[us, UTC]", "2024-05-01T12:00:00", datetime(2024, 5, 1, 12, tzinfo=UTC)),
        ("timestamp[us, UTC]", "2024-05-01 14:00:00+02:00", datetime(2024, 5, 1, 12, tzinfo=UTC)),
        ("string", "00712", "00712"),
        ("binary", "NA", b"NA"),
    ],
)
def test_a_schema_says_what_a_cell_is(type_: str, cell: str, value: object) -> None:
    assert column(type_, cell, "") == [value, None]
    if type_ not in ("string", "binary"):
        assert column(type_, f'"{cell.strip()}"') == [value]


@pytest.mark.parametrize(
    ("type_", "cell", "says"),
    [
        ("int64", "A0", "'A0' is no int64"),
        ("int64", "0x10", "'0x10' is no int64"),
        ("int64", "1.5", "'1.5' is no int64"),
        ("int8", "300", "300 does not fit int8"),
        ("int64", "NA", "'NA' is no int64"),
        ("int64", "9" * 60, "is no int64"),
        ("float64", "1e999", "out of the range of double"),
        ("float64", "n/a", "'n/a' is no double"),
        ("bool", "yes", "'yes' is no bool"),
        ("date32", "01.05.2024", "no date such as"),
        ("decimal128(5, 2)", "1.005", "does not fit decimal128"),
        ("timestamp[us]", "2024-05-01T12:00:00Z", "does not fit timestamp"),
        ("list<int8>", '"[1"', "it is no JSON"),
        ("int64", '""', "'' is no int64"),
    ],
)
def test_a_cell_that_does_not_fit_is_refused_with_row_and_column(type_: str, cell: str, says: str) -> None:
    good = "" if type_ != "list<int8>" else '"[1]"'
    with pytest.raises(SmqError, match=rf"^row 2: column c: .*{says}"):
        column(type_, good, cell)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a,b,a\n1,2,3\n", "the column 'a' more than once"),
        (b"a,b\n1,2\n1,2,3\n", "row 2 has 3 fields, and the header has 2: 1,2,3"),
        (b"a,b\n1\n", "row 1 has 1 fields, and the header has 2"),
        ("a\ngrün\n".encode("latin-1"), "column a: .*only UTF-8 is read"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16.*iconv"),
    ],
)
def test_a_file_that_is_not_csv_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(SmqError, match=says):
        read(text)


def test_files_of_spreadsheets_are_read() -> None:
    assert read(b"\xef\xbb\xbfa;b\r\n1,5;x\r\n", dialect=CsvDialect(delimiter=";")) == [{"a": "1,5", "b": "x"}]
    assert read(b'"a b",c\n1,2\n\n') == [{"a b": "1", "c": "2"}], "an empty last line is no row"
    assert read(b"") == read(b"a,b\n") == []
    for wrong in ("", ";;", '"', "\n", "é"):
        with pytest.raises(InvalidRequest, match="--delimiter must be one"):
            CsvDialect(delimiter=wrong)


@pytest.mark.parametrize("empty", [b"\n", b"\r\n\n", b"\xef\xbb\xbf\n"])
def test_empty_lines_before_the_header_are_no_header(empty: bytes) -> None:
    assert read(empty + b"a,b\n1,2\n") == [{"a": "1", "b": "2"}]
    assert read(empty + b"value\n\nx\n") == [{"value": None}, {"value": b"x"}]
    assert read(empty) == []


def test_the_header_is_found_in_a_later_part_of_a_pipe() -> None:
    parts = io.BytesIO(b"\nvalue\nx\n")
    parts.read1 = lambda size=-1, /: parts.readline()  # type: ignore[method-assign]

    (table,) = read_csv(parts, (), None, DEFAULT_DIALECT)
    assert table.to_pylist() == [{"value": b"x"}]


@pytest.mark.parametrize("header", [b'""', b",,", b" , ", b"  "])
def test_a_header_without_names_is_refused(header: bytes) -> None:
    with pytest.raises(InvalidRequest, match="the header has no names"):
        read(header + b"\n1,2\n")


def test_columns_of_messages_are_read() -> None:
    (row,) = read(b'_offset,timestamp,value,headers\n7,2024-05-01T12:00:00Z,v,"{""a"": ""b""}"\n')

    assert row["timestamp"] == datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert row["headers"] == [{"key": "a", "value": b"b"}]
    with pytest.raises(SmqError, match="row 1: column timestamp: "):
        read(b"timestamp,value\nnoon,v\n")


@pytest.mark.parametrize("rows", ["1\n2\n3\n4\nx\n", "1\n2\n3\n4\n5,6\n"], ids=["a value", "one field more"])
def test_rows_are_counted_from_the_beginning_of_the_file(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 4)
    with pytest.raises(SmqError, match="row 5"):
        read(f"c\n{rows}".encode(), [Column("c", "int64")])
