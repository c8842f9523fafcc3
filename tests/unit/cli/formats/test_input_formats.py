"""Input formats of messages to publish."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq.cli.files.sources import InputFormat, Reading, can_be_read_twice, format_of, tables
from smq_core.errors import InvalidRequest, SchemaMismatch
from smq_core.model.entities import Column

COLUMNS = [Column("name", "string"), Column("size", "int32", nullable=True), Column("at", "timestamp[us, UTC]", True)]


def read(
    text: bytes, format_: InputFormat, columns: Sequence[Column] = (), key: str | None = None
) -> list[dict[str, object]]:
    return pa.concat_tables(tables("-", format_, columns, io.BytesIO(text), Reading(key))).to_pylist()


def test_the_format_is_taken_from_the_suffix() -> None:
    assert format_of("a/b.PARQUET", True) is InputFormat.PARQUET
    assert format_of("x.csv", False) is InputFormat.CSV
    assert format_of("x.jsonl", False) is InputFormat.JSON
    assert format_of("-", True) is InputFormat.JSON
    assert format_of("-", False) is InputFormat.LINES
    with pytest.raises(InvalidRequest, match="add --input"):
        format_of("data.bin", False)


@pytest.mark.parametrize("format_", [InputFormat.CSV, InputFormat.JSON, InputFormat.LINES])
@pytest.mark.parametrize(("codec", "name"), [("gzip", "zcat"), ("zstd", "zstdcat"), ("bz2", "bzcat")])
def test_compressed_data_is_refused_under_any_name(format_: InputFormat, codec: str, name: str) -> None:
    """As plain lines it would become messages that nobody can read."""
    data = pa.BufferOutputStream()
    with pa.CompressedOutputStream(data, codec) as packed:
        packed.write(b"a,b\n1,2\n")
    with pytest.raises(InvalidRequest, match=f"is compressed .*`{name} FILE"):
        list(tables("-", format_, (), io.BytesIO(data.getvalue().to_pybytes())))


def test_a_compressed_file_is_refused_with_the_way_to_read_it() -> None:
    with pytest.raises(InvalidRequest, match=r"`zcat x\.csv\.gz \| smq publish TOPIC --input csv`"):
        format_of("x.csv.gz", False)
    with pytest.raises(InvalidRequest, match=r"zstdcat x\.jsonl\.zst .* --input json"):
        format_of("x.jsonl.zst", True)


def test_an_array_of_json_is_refused_with_what_makes_lines_of_it() -> None:
    for columns in ((), COLUMNS):
        with pytest.raises(SchemaMismatch, match=r"^line 1: it is no JSON: '\['.*`jq -c '\.\[\]'`"):
            read(b'[\n{"name": "a"}\n]\n', InputFormat.JSON, columns)


def test_a_file_may_be_a_pipe(tmp_path: Path) -> None:
    out, into = os.pipe()
    os.write(into, b"key,value\nk,v\n")
    os.close(into)
    name = f"/dev/fd/{out}"  # as of <(command) in a shell
    try:
        assert not can_be_read_twice(name)
        (found,) = tables(name, InputFormat.CSV, (), io.BytesIO())
        assert found.to_pylist() == [{"key": b"k", "value": b"v"}]
    finally:
        os.close(out)


def test_each_line_is_a_message_also_the_empty_one_and_the_one_without_an_end() -> None:
    rows = read(b"one\n\ntwo\r\nthree", InputFormat.LINES)

    assert [row["value"] for row in rows] == [b"one", b"", b"two\r", b"three"]


def test_a_delimiter_ends_the_key_of_a_line() -> None:
    found = tables(
        "-", InputFormat.LINES, (), io.BytesIO(b"k:v\nno key\n:empty key\na:b:c\n"), Reading(key_delimiter=":")
    )
    assert [(row["key"], row["value"]) for row in pa.concat_tables(found).to_pylist()] == [
        (b"k", b"v"),
        (None, b"no key"),
        (b"", b"empty key"),
        (b"a", b"b:c"),
    ]


def test_lines_of_a_pipe_come_as_soon_as_they_are_written() -> None:
    out, into = os.pipe()
    with os.fdopen(out, "rb") as source, os.fdopen(into, "wb", buffering=0) as sink:
        found = tables("-", InputFormat.LINES, (), source)
        sink.write(b"first\nhal")
        assert next(found).to_pylist() == [{"value": b"first"}]
        sink.write(b"f\n")
        assert next(found).to_pylist() == [{"value": b"half"}]


def test_json_lines_of_a_topic_with_a_schema_take_its_types() -> None:
    rows = read(b'{"size": 3, "name": "a"}\n{"name": "b", "at": "2024-01-02T03:04:05Z"}\n', InputFormat.JSON, COLUMNS)

    assert [row["size"] for row in rows] == [3, None]
    assert str(rows[1]["at"]) == "2024-01-02 03:04:05+00:00"


def test_a_json_value_of_another_type_is_refused_with_its_column() -> None:
    with pytest.raises(SchemaMismatch, match=r"line 1: column size: 1\.5 .* does not fit int32"):
        read(b'{"name": "a", "size": 1.5}\n', InputFormat.JSON, COLUMNS)


def test_json_objects_without_a_schema_stay_the_text_they_are() -> None:
    rows = read(b'{"id": 7,  "b": 1.10}\n{"id": null, "value": "v"}\n', InputFormat.JSON, key="id")

    assert rows == [{"key": b"7", "value": b'{"id": 7,  "b": 1.10}'}, {"key": None, "value": b"v"}]


def test_what_is_no_json_is_quoted() -> None:
    with pytest.raises(InvalidRequest, match="no JSON: 'hello'"):
        read(b"hello\n", InputFormat.JSON)


def test_csv_takes_the_topics_types_and_empty_fields_are_null() -> None:
    rows = read(b"size,name\n1,a\n,b\n", InputFormat.CSV, COLUMNS)

    assert rows == [{"size": 1, "name": "a"}, {"size": None, "name": "b"}]


def test_a_csv_value_of_another_type_is_refused_with_its_columns_name() -> None:
    with pytest.raises(SchemaMismatch, match=r"^row 2: column size: 'x' is no int32$"):
        read(b"name,size\na,1\nb,x\n", InputFormat.CSV, COLUMNS)


def test_of_parquet_only_the_columns_of_the_topic_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "other": [1, 2]}), path)

    made = pa.concat_tables(tables(str(path), InputFormat.PARQUET, COLUMNS, io.BytesIO(), Reading(ignore_unknown=True)))

    assert made.to_pylist() == [{"name": "a"}, {"name": "b"}]


def test_parquet_comes_through_a_pipe_too(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"name": ["a"]}), path)
    out, into = os.pipe()
    os.write(into, path.read_bytes())
    os.close(into)
    with os.fdopen(out, "rb") as source:
        assert next(tables("-", InputFormat.PARQUET, COLUMNS, source)).to_pylist() == [{"name": "a"}]


def test_a_file_that_is_not_what_it_says_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_text("hello, this is text")

    with pytest.raises(InvalidRequest, match=r"a\.parquet cannot be read as parquet"):
        list(tables(str(path), InputFormat.PARQUET, (), io.BytesIO()))
    with pytest.raises(InvalidRequest, match="there is no file"):
        list(tables(str(tmp_path / "none.csv"), InputFormat.CSV, (), io.BytesIO()))
