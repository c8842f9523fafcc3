"""Output formats of consumed messages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq.cli.files.formats import OutputFormat
from smq.cli.files.sinks import Shown, open_sink
from smq_core.errors import InvalidRequest
from smq_storage.chunks.schemas import HEADERS, TIMESTAMP


def rows(values: list[bytes | None], headers: list[object] | None = None) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "partition": pa.array([3] * count, pa.int32()),
            "timestamp": pa.array([1_700_000_000_000_000] * count, TIMESTAMP),
            "appended": pa.array([1_700_000_000_500_000] * count, TIMESTAMP),
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers or [None] * count, HEADERS),
        }
    )


def typed() -> pa.Table:
    return pa.table(
        {
            "partition": pa.array([3], pa.int32()),
            "timestamp": pa.array([0], TIMESTAMP),
            "appended": pa.array([0], TIMESTAMP),
            "name": ["a"],
            "size": pa.array([None], pa.int32()),
            "at": pa.array([1_700_000_000_000_000], TIMESTAMP),
            "headers": pa.array([None], HEADERS),
        }
    )


def written(tmp_path: Path, form: OutputFormat, table: pa.Table, meta: bool = False, **shown: Any) -> bytes:
    path = tmp_path / "out"
    with open_sink(form, path, Shown(meta, **shown)) as sink:
        sink.write(table, "events-0-8-0", 40)
    return path.read_bytes()


def test_text_is_the_value_and_nothing_else(tmp_path: Path) -> None:
    assert written(tmp_path, OutputFormat.TEXT, rows([b"one", None, b"\xff"])) == b"one\n\n\xff\n"


def test_text_of_a_topic_with_a_schema_has_its_columns_between_tabs(tmp_path: Path) -> None:
    assert written(tmp_path, OutputFormat.TEXT, typed()) == b"a\t\t2023-11-14T22:13:20.000000Z\n"


def test_columns_named_key_and_value_are_columns(tmp_path: Path) -> None:
    table = typed().rename_columns(["partition", "timestamp", "appended", "key", "value", "other", "headers"])
    table = table.drop_columns(["other"])

    assert written(tmp_path, OutputFormat.TEXT, table) == b"a\t\n"
    assert written(tmp_path, OutputFormat.JSON, table) == b'{"key": "a", "value": null}\n'


WITH_HEADERS = [[{"key": "a", "value": b"b"}, {"key": "c", "value": None}], None]


def test_text_has_the_key_and_the_headers_on_request(tmp_path: Path) -> None:
    table = rows([b"one", b"two"], WITH_HEADERS)
    assert written(tmp_path, OutputFormat.TEXT, table, key_delimiter=": ") == b"k: one\nk: two\n"
    assert written(tmp_path, OutputFormat.TEXT, table, headers=True) == b"a:b,c:\tone\n\ttwo\n"
    both = written(tmp_path, OutputFormat.TEXT, table, headers=True, key_delimiter="=")
    assert both == b"a:b,c:\tk=one\n\tk=two\n"
    with pytest.raises(InvalidRequest, match="for messages without a schema"):
        written(tmp_path, OutputFormat.TEXT, typed(), key_delimiter=":")


def test_csv_is_read_back_as_it_was(tmp_path: Path) -> None:
    table = rows([b"one", None, b"", b'a "quoted", text\nof two lines'])
    assert list(csv.DictReader(io.StringIO(written(tmp_path, OutputFormat.CSV, table).decode(), newline=""))) == [
        {"key": "k", "value": "one"},
        {"key": "k", "value": ""},
        {"key": "k", "value": ""},
        {"key": "k", "value": 'a "quoted", text\nof two lines'},
    ]
    assert b'"k",\n"k",""\n' in written(tmp_path, OutputFormat.CSV, table), "null is not an empty text"


def test_csv_has_the_nearest_times_that_python_has_as_all_formats_do(tmp_path: Path) -> None:
    """A log may have others, which Arrow writes as times of other years: those of one were negative."""
    far = pa.array([10**18, None, -(9 * 10**18), 0], pa.timestamp("us", "UTC"))
    table = pa.table({"t": far, "d": pa.array([10**7, None, -(10**7), 0], pa.date32())})
    assert written(tmp_path, OutputFormat.CSV, table).decode().splitlines()[1:] == [
        "9999-12-31 23:59:59.999999Z,9999-12-31",
        ",",
        "0001-01-01 00:00:00.000000Z,0001-01-01",
        "1970-01-01 00:00:00.000000Z,1970-01-01",
    ]


def test_csv_has_headers_and_where_a_message_is_on_request(tmp_path: Path) -> None:
    table = rows([b"one", b"two"], WITH_HEADERS)
    with_headers = written(tmp_path, OutputFormat.CSV, table, headers=True).decode()
    found = list(csv.DictReader(io.StringIO(with_headers)))
    assert json.loads(found[0]["headers"]) == [{"key": "a", "value": "b"}, {"key": "c", "value": None}]
    assert found[1]["headers"] == ""
    placed = list(csv.DictReader(io.StringIO(written(tmp_path, OutputFormat.CSV, table, meta=True).decode())))
    assert [(it["_segment"], it["_offset"], it["partition"]) for it in placed] == [
        ("events-0-8-0", "40", "3"),
        ("events-0-8-0", "41", "3"),
    ]


def test_csv_has_one_line_of_names_and_the_same_columns_throughout(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with open_sink(OutputFormat.CSV, path) as sink:
        sink.write(rows([b"one"], WITH_HEADERS[:1]), "s", 0)
        sink.write(rows([b"two"]), "s", 1)
        assert path.read_text() == '"key","value"\n"k","one"\n"k","two"\n', "each write is flushed"
        with pytest.raises(InvalidRequest, match="the topic's schema has changed"):
            sink.write(typed(), "s", 2)


def test_bytes_that_are_no_text_are_refused_in_csv(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="column value has bytes that are not text"):
        written(tmp_path, OutputFormat.CSV, rows([b"\xff"]))


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("x.csv", OutputFormat.CSV),
        ("x.PARQUET", OutputFormat.PARQUET),
        ("x.jsonl", OutputFormat.JSON),
        ("x.json", OutputFormat.JSON),
        ("x.txt", OutputFormat.TEXT),
        ("x", OutputFormat.TEXT),
        ("folder.d/x", OutputFormat.TEXT),
    ],
)
def test_the_name_of_a_file_says_its_format(name: str, form: OutputFormat) -> None:
    assert OutputFormat.of_file(Path(name)) is form


@pytest.mark.parametrize("name", ["x.xlsx", "some.folder/x.gz"])
def test_a_suffix_without_a_format_is_refused_with_those_that_have_one(name: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"no format has the suffix \.\w+\. .* \.ndjson, \.csv, \.parquet; .* --format"
    ):
        OutputFormat.of_file(Path(name))


def test_json_has_the_messages_own_columns(tmp_path: Path) -> None:
    assert json.loads(written(tmp_path, OutputFormat.JSON, rows([b"one"]))) == {"key": "k", "value": "one"}
    assert json.loads(written(tmp_path, OutputFormat.JSON, typed())) == {
        "name": "a",
        "size": None,
        "at": "2023-11-14T22:13:20.000000Z",
    }


def test_json_of_bytes_that_are_no_text_is_base64(tmp_path: Path) -> None:
    assert json.loads(written(tmp_path, OutputFormat.JSON, rows([b"\xff"])))["value_base64"] == "/w=="


def test_headers_are_shown_when_there_are_any(tmp_path: Path) -> None:
    line = written(tmp_path, OutputFormat.JSON, rows([b"one"], [[{"key": "a", "value": b"b"}]]))

    assert json.loads(line)["headers"] == [{"key": "a", "value": "b"}]


def test_meta_shows_headers_and_a_message_without_any_has_no_such_field(tmp_path: Path) -> None:
    table = rows([b"one", b"two"], [[{"key": "a", "value": b"\xff"}, {"key": "b", "value": None}], None])

    one, two = map(json.loads, written(tmp_path, OutputFormat.JSON, table, meta=True).splitlines())

    assert one["headers"] == [{"key": "a", "value_base64": "/w=="}, {"key": "b", "value": None}]
    assert "headers" not in two


def test_text_with_meta_has_the_same_columns_on_every_line(tmp_path: Path) -> None:
    with_headers = rows([b"one"], [[{"key": "a", "value": b"b"}]])
    lines = [written(tmp_path, OutputFormat.TEXT, table, meta=True) for table in (with_headers, rows([b"one"]))]

    assert [line.count(b"\t") for line in lines] == [7, 7]


def test_json_loses_no_digit_of_a_time_or_a_number(tmp_path: Path) -> None:
    table = pa.table(
        {
            "at": pa.array([253_402_300_799_999_999], TIMESTAMP),
            "f": [float("nan")],
            "raw": pa.array([[b"\xff", b"a", None]], pa.list_(pa.binary())),
        }
    )

    assert json.loads(written(tmp_path, OutputFormat.JSON, table)) == {
        "at": "9999-12-31T23:59:59.999999Z",
        "f": "NaN",
        "raw_base64": ["/w==", "YQ==", None],
    }


def test_meta_adds_where_a_message_is(tmp_path: Path) -> None:
    lines = written(tmp_path, OutputFormat.JSON, rows([b"one", b"two"]), meta=True).splitlines()

    assert [(m["_segment"], m["_offset"], m["partition"]) for m in map(json.loads, lines)] == [
        ("events-0-8-0", 40, 3),
        ("events-0-8-0", 41, 3),
    ]


def test_parquet_is_whole_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    with open_sink(OutputFormat.PARQUET, path) as sink:
        sink.write(rows([b"one"]), "s", 0)
        sink.write(rows([b"two"]), "s", 1)
        assert not sink.flushed

    assert pq.read_table(path)["value"].to_pylist() == [b"one", b"two"]


def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        open_sink(OutputFormat.JSON, tmp_path / "no" / "where")


def test_text_has_lists_and_maps_as_json_lines_have_them(tmp_path: Path) -> None:
    columns = {
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
        "list": pa.array([[float("nan"), 0.5]]),
        "struct": pa.array(
            [{"raw": b"\xff", "at": 1_700_000_000_000_000}], pa.struct([("raw", pa.binary()), ("at", TIMESTAMP)])
        ),
    }
    text = written(
        tmp_path,
        OutputFormat.TEXT,
        pa.table(typed().columns[:3] + list(columns.values()), names=["partition", "timestamp", "appended", *columns]),
    )
    in_json = json.loads(written(tmp_path, OutputFormat.JSON, pa.table(columns)))
    assert [json.loads(value) for value in text.split(b"\t")] == list(in_json.values())
