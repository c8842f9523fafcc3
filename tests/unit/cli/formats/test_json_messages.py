"""JSON lines without a schema: what is a message, what is a value, and what is refused with its line."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pyarrow as pa
import pytest

from smq.cli.files.column_matching import to_messages
from smq.cli.files.sources import InputFormat, Reading, tables
from smq_core.errors import SchemaMismatch


def read(*lines: str, key: str | None = None) -> list[dict[str, object]]:
    """The messages that would be published."""
    text = "".join(line + "\n" for line in lines).encode()
    return [
        row
        for table in tables("-", InputFormat.JSON, (), io.BytesIO(text), Reading(key))
        for row in to_messages(table, None).to_pylist()
    ]


def test_null_is_a_tombstone_and_not_an_empty_message() -> None:
    assert read('{"key":"k","value":null}', '{"key":"k","value":""}') == [
        {"key": b"k", "value": None},
        {"key": b"k", "value": b""},
    ]


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ('{"h":"1"}', [("h", b"1")]),
        ('{"h":null}', [("h", None)]),
        ('[["h","1"],["h","2"]]', [("h", b"1"), ("h", b"2")]),
        ('[{"key":"h","value":"1"},{"key":"h","value_base64":"/w=="}]', [("h", b"1"), ("h", b"\xff")]),
        ("{}", []),
        ("null", None),
    ],
)
def test_headers_are_a_mapping_or_pairs(written: str, stored: list[tuple[str, bytes | None]] | None) -> None:
    found = read('{"value":"x","headers":' + written + "}", '{"value":"y","headers":{"other":"z"}}')

    expected = None if stored is None else [{"key": name, "value": value} for name, value in stored]
    assert [row["headers"] for row in found] == [expected, [{"key": "other", "value": b"z"}]]


def test_bytes_that_are_not_text_are_base64() -> None:
    assert read('{"key_base64":"AP8=","value_base64":"/w=="}') == [{"key": b"\x00\xff", "value": b"\xff"}]


def test_values_that_are_not_text_are_stored_as_they_are_written() -> None:
    found = read(
        '{"value": {"a":  1.10, "é": [1e2]}}', '{ "key" : 1.50 ,"value":7}', '"text"', "7.10", "null", '{"a":1}'
    )

    assert [row["value"] for row in found] == [
        '{"a":  1.10, "é": [1e2]}'.encode(),
        b"7",
        b"text",
        b"7.10",
        None,
        b'{"a":1}',
    ]
    assert found[1]["key"] == b"1.50"


def test_times_are_iso_8601_or_microseconds() -> None:
    found = read(
        '{"value":"x","timestamp":"1970-01-01T00:00:01.000002Z"}', '{"value":"x","timestamp":5}', '{"value":"x"}'
    )

    times = pa.array([row["timestamp"] for row in found]).cast(pa.int64())
    assert times.to_pylist() == [1_000_002, 5, None]


def test_what_a_position_says_is_given_anew() -> None:
    line = '{"_segment":"s-0-8-0","_offset":4,"partition":3,"appended":"2024-01-01T00:00:00Z","value":"x"}'

    assert read(line) == [{"key": None, "value": b"x"}]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hello", "line 3: it is no JSON: 'hello' .Expecting value at character 1"),
        ('{"value":NaN}', "line 3: it is no JSON: .* .NaN is not JSON"),
        ('{"value":"x","color":"red"}', "line 3: a message has no field color"),
        ('{"value":"x","value":"y"}', "line 3: the field value occurs twice"),
        ('{"value":"x","value_base64":"eA=="}', "line 3: it has value and value_base64"),
        ('{"key":"x","key_base64":"eA==","value":"x"}', "line 3: it has key and key_base64"),
        ('{"value_base64":"no"}', "line 3: value_base64 must be base64, not 'no'"),
        ('{"value_base64":7}', "line 3: value_base64 must be base64, not 7"),
        ('{"value":"\\ud800"}', "line 3: .* is not valid Unicode"),
        ('{"key":"k"}', 'line 3: the message has no value; for a tombstone, write "value": null'),
        ('{"value":"x","headers":"h"}', "line 3: headers are .*, not 'h'"),
        ('{"value":"x","headers":{"h":1}}', "line 3: the header h must be text or null, not 1"),
        ('{"value":"x","headers":{"h":"1","h":"2"}}', "line 3: the field h occurs twice"),
        ('{"value":"x","headers":[["h"]]}', "line 3: headers are .*, not .'h'."),
        ('{"value":"x","headers":[{"key":"h"}]}', "line 3: headers are "),
        ('{"value":"x","headers":[{"key":"h","value":"1","more":2}]}', "line 3: headers are "),
        ('{"value":"x","timestamp":"noon"}', "line 3: timestamp must be a time such as .*, not 'noon'"),
        ('{"value":"x","timestamp":1.5}', "line 3: timestamp must be a time"),
        ('{"value":"x","timestamp":true}', "line 3: timestamp must be a time"),
        ('{"value":"x","timestamp":"2024-01-01T00:00:00.1234567Z"}', "line 3: timestamp has .* not whole microseconds"),
        ("[" * 100_000, "line 3: it is no JSON"),
    ],
)
def test_a_line_that_is_no_message_is_refused_with_its_number(line: str, says: str) -> None:
    with pytest.raises(SchemaMismatch, match=says):
        read('{"value":"fine"}', "", line)


def test_lines_are_counted_through_the_blocks_of_a_pipe() -> None:
    parts = iter([b'{"a":1}\n\n{"a"', b":2}\n", b"{}\nbroken\n", b""])
    pipe = SimpleNamespace(read=None, read1=lambda _: next(parts))

    found = tables("-", InputFormat.JSON, (), pipe)  # type: ignore[arg-type]
    assert [next(found)["value"].to_pylist() for _ in range(2)] == [[b'{"a":1}'], [b'{"a":2}']]
    with pytest.raises(SchemaMismatch, match="line 5: "):
        next(found)


def test_text_that_is_not_utf_8_is_refused_with_its_line() -> None:
    with pytest.raises(SchemaMismatch, match="line 2: it is not UTF-8"):
        list(tables("-", InputFormat.JSON, (), io.BytesIO(b'{"a":1}\n"\xff"\n')))


def test_a_named_key_must_be_there_and_be_the_only_one() -> None:
    assert read('{"id":7,"value":"x"}', '{"id":null,"a":1}', key="id") == [
        {"key": b"7", "value": b"x"},
        {"key": None, "value": b'{"id":null,"a":1}'},
    ]
    for line, says in (
        ('{"a":1}', "line 1: there is no field 'id'"),
        ("7", "line 1: there is no field 'id'"),
        ('{"id":1,"key":"k","value":"x"}', "line 1: it has two keys, in id and in key"),
        ('{"id":1,"id":2}', "line 1: the field id occurs twice"),
    ):
        with pytest.raises(SchemaMismatch, match=says):
            read(line, key="id")
