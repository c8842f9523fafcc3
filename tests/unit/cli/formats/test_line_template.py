"""The format string of `smq consume --print`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from smq.cli.files.formats import OutputFormat
from smq.cli.files.line_template import LineTemplate
from smq.cli.files.sinks import Shown, open_sink
from smq_core.errors import InvalidRequest
from smq_storage.chunks.schemas import HEADERS, TIMESTAMP


def printed(path: Path, text: str, **body: Any) -> bytes:
    table = pa.table(
        {
            "_topic": ["events"],
            "partition": pa.array([3], pa.int32()),
            "timestamp": pa.array([1_700_000_000_000_000], TIMESTAMP),
            "appended": pa.array([0], TIMESTAMP),
            **body,
            "headers": pa.array([[("a", b"1"), ("b", None)]], HEADERS),
        }
    )
    with open_sink(OutputFormat.TEXT, path / "out", Shown(template=LineTemplate(text))) as sink:
        sink.write(table, "events-0-8-0", 40)
    return (path / "out").read_bytes()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (r"%k\t%v\n", b"k\tv\xff\n"),
        ("%t %p %S:%o %T", b"events 3 events-0-8-0:40 2023-11-14T22:13:20.000000Z"),
        ("%h|100%%|%s", b"a=1,b=|100%|v\xff"),
        (r"a\\b\0\q", b"a\\b\0\\q"),
        ("", b""),
    ],
)
def test_a_message_is_printed_by_the_format(tmp_path: Path, text: str, line: bytes) -> None:
    assert printed(tmp_path, text, key=pa.array([b"k"]), value=pa.array([b"v\xff"])) == line


def test_columns_of_a_schema_are_json_and_a_tombstone_is_empty(tmp_path: Path) -> None:
    assert printed(tmp_path, "%k|%v", key=pa.array([None], pa.binary()), value=pa.array([None], pa.binary())) == b"|"
    assert printed(tmp_path, "%k|%v", key=["a"], value=[1.5]) == b'|{"key": "a", "value": 1.5}'
    assert printed(tmp_path, "%v", name=["a"]) == b'{"name": "a"}'


@pytest.mark.parametrize("text", ["%x", "%", "a\\"])
def test_a_format_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--print"):
        LineTemplate(text)
