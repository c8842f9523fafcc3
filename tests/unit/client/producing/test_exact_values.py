"""What single messages and tables may contain, and what the errors say. The rule itself is a property test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from smq.producing.batching.batch_builder import check_headers, check_value
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.keys import canonical_bytes
from smq_core.errors import InvalidRequest, SchemaMismatch
from smq_core.model.entities import Column, Topic, TopicSpec
from smq_storage.conversion.time_conversion import check_timestamp

COLUMNS = (
    Column("id", "int32"),
    Column("price", "decimal128(5, 2)", nullable=True),
    Column("single", "float32", nullable=True),
    Column("name", "string", nullable=True),
    Column("raw", "binary", nullable=True),
    Column("at", "timestamp[us, UTC]", nullable=True),
    Column("local", "timestamp[us]", nullable=True),
    Column("tags", "list<string>", nullable=True),
    Column("clock", "time", nullable=True),
)
TYPED = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=64, schema=COLUMNS)))
RAW = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=64)))


def row(**values: Any) -> dict[str, object]:
    """What ``send`` would hold of these columns."""
    found, _ = check_value({"id": 1, **values}, TYPED)
    assert isinstance(found, tuple)
    return dict(zip(TYPED.body_schema.names, found, strict=True))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"id": 1.5}, r"column id: 1\.5 \(double\) does not fit int32: the value would change"),
        ({"id": "7"}, r"column id: '7' \(string\) does not fit int32: text is not a number"),
        ({"id": True}, "column id: True .bool. does not fit int32: a bool is not a number"),
        ({"id": 1 << 31}, "column id: 2147483648 does not fit int32: it is not in -2147483648 to 2147483647"),
        ({"id": None}, "column id: it may not be null"),
        ({}, "column id: it may not be null"),
        ({"id": 1, "other": 1, "more": 2}, "no column other, more$"),
        ({"id": 1, "prize": 1, "price": 2}, r"^default/t: the topic has no column prize \(did you mean price\?\)$"),
        ({"id": 1, "single": 0.1}, "column single: 0.1 .* the value would change; round it first"),
        ({"id": 1, "single": float("1e300")}, "column single: 1e.300"),
        ({"id": 1, "price": Decimal("1000")}, "column price: Decimal.'1000'.* does not fit decimal128"),
        ({"id": 1, "price": Decimal("NaN")}, "column price: Decimal.'NaN'."),
        ({"id": 1, "price": 0.5}, "column price: 0.5 .* a float is not a decimal"),
        ({"id": 1, "name": b"x"}, "column name: b'x' .* bytes are not text"),
        ({"id": 1, "name": "\ud800"}, "column name: .* not valid Unicode"),
        ({"id": 1, "raw": "x"}, "column raw: 'x' .* text is not bytes"),
        ({"id": 1, "at": datetime(2024, 1, 1)}, "column at: .* it has no time zone; give it one first"),
        ({"id": 1, "at": 5}, "column at: 5 .int64. does not fit timestamp"),
        ({"id": 1, "at": pd.Timestamp("2024-01-01T00:00:00.000000001Z")}, "column at: .* the value would change"),
        ({"id": 1, "at": pd.NaT}, "column at: NaT"),
        ({"id": 1, "at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=9)))}, "column at: "),
        ({"id": 1, "local": datetime(2024, 1, 1, tzinfo=UTC)}, "column local: .* it has a time zone; remove it first"),
        ({"id": 1, "tags": ["a", 1]}, "column tags: 1 .int64. does not fit string"),
        ({"id": 1, "tags": "ab"}, "column tags: 'ab' .string. does not fit list"),
        ({"id": 1, "name": object()}, "column name: <object"),
        (b"plain", "a mapping of columns, not bytes"),
    ],
)
def test_a_message_with_a_value_that_does_not_fit_is_refused(value: object, says: str) -> None:
    with pytest.raises(SchemaMismatch, match=says) as caught:
        check_value(value, TYPED)
    assert caught.value.expected == TYPED.expected


def test_scalars_of_other_libraries_are_taken_at_their_value() -> None:
    at = datetime(2024, 1, 1, 12, tzinfo=UTC)
    found = row(
        id=np.int64(7),
        single=np.float32(0.1),
        at=pd.Timestamp(at),
        local=np.datetime64("2024-01-01T00:00:00.000001000", "ns"),
        raw=bytearray(b"x"),
        tags=np.array(["a", "b"]),
        price=pa.scalar(Decimal("1.5")),
    )

    assert (found["id"], found["at"], found["raw"], found["tags"]) == (7, at, b"x", ["a", "b"])
    assert found["local"] == datetime(2024, 1, 1, microsecond=1)
    assert found["single"] == float(np.float32(0.1))
    assert found["price"] == Decimal("1.50")


def test_every_mapping_is_a_row() -> None:
    plain = {"id": 1, **dict.fromkeys([c.name for c in COLUMNS[1:]])}

    for value in ({"id": 1}, plain, MappingProxyType(plain), dict(reversed(plain.items()))):
        assert check_value(value, TYPED)[0] == (1, *[None] * (len(COLUMNS) - 1))


def test_a_message_does_not_change_with_its_mapping() -> None:
    tags = ["a"]
    value = {"id": 1, "tags": tags}
    found, _ = check_value(value, TYPED)
    tags.append("b")
    value["id"] = 2

    assert found == (1, *[None] * 6, ["a"], None)


def test_a_message_counts_the_bytes_of_its_text() -> None:
    _, short = check_value({"id": 1}, TYPED)
    _, long = check_value({"id": 1, "name": "é" * 100, "tags": ["x" * 50], "raw": b"12345"}, TYPED)

    assert 200 + 50 + 5 <= long - short <= 200 + 50 + 5 + 20


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"id": [1, 2, None]}, "column id, row 2: it may not be null"),
        ({"id": [1.0, 2.5]}, r"column id, row 1: 2\.5 \(double\) does not fit int32: the value would change"),
        ({"id": ["1"]}, r"column id, row 0: '1' \(string\) does not fit int32: text is not a number"),
        ({"id": pa.array(["1", "2"]).dictionary_encode()}, "column id, row 0: '1' .string. does not fit int32"),
        ({"id": [1, 1 << 40]}, "column id, row 1: 1099511627776 .int64. does not fit int32"),
        ({"id": [1], "single": [0.1]}, "column single, row 0: 0.1 .double. does not fit float"),
        ({"id": [1], "at": pa.array([1], pa.timestamp("ns", "UTC"))}, "column at, row 0: .* the value would change"),
        ({"id": [1], "at": pa.array([1], pa.timestamp("us"))}, "column at, row 0: .* it has no time zone"),
        ({"id": [1], "local": pa.array([1], pa.timestamp("us", "UTC"))}, "column local, row 0: .* it has a time zone"),
        ({"id": [1, 2], "tags": [[1], [2]]}, "column tags, row 0: .1. .* an item does not fit"),
        ({"id": [1], "timestamp": ["2024-01-01"]}, "column timestamp, row 0: '2024-01-01'"),
        ({"id": [1], "timestamp": [1.0]}, "column timestamp, row 0: 1.0"),
        ({"id": [1], "headers": [[{"key": "k", "value": "text"}]]}, "column headers, row 0: .* an item does not fit"),
        ({"id": [1], "headers": [[{"key": "k", "more": b""}]]}, "column headers, row 0: .* an item does not fit"),
    ],
)
def test_a_table_with_a_value_that_does_not_fit_is_refused(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaMismatch, match=says):
        TYPED.check(pa.table(columns))


def test_headers_of_tables_may_be_maps() -> None:
    kind = pa.map_(pa.string(), pa.binary())
    table, _ = TYPED.check(pa.table({"id": [1, 2, 3], "headers": pa.array([[("a", b"1")], None, []], kind)}).slice(1))

    assert table["headers"].to_pylist() == [None, []]


def test_times_of_messages_are_times_or_microseconds() -> None:
    for times in (
        pa.array([5], pa.uint8()),
        pa.array([5000], pa.timestamp("ns")),
        pa.array([5], pa.timestamp("us", "UTC")),
    ):
        table, _ = RAW.check(pa.table({"value": [b"x"], "timestamp": times}))
        assert table["timestamp"].cast(pa.int64()).to_pylist() == [5]


def test_values_without_a_schema_are_bytes_both_ways() -> None:
    with pytest.raises(InvalidRequest, match="encode text"):
        check_value("text", RAW)
    with pytest.raises(SchemaMismatch, match=r"column value, row 1: 'text' .* text is not bytes; encode it first"):
        RAW.check(pa.table({"value": [None, "text"]}))


def test_what_would_fail_later_is_refused_when_it_is_sent() -> None:
    with pytest.raises(InvalidRequest, match="valid Unicode"):
        check_headers([("\ud800", b"")])
    with pytest.raises(InvalidRequest, match="whole microseconds"):
        check_timestamp(pd.Timestamp("2024-01-01T00:00:00.000000001Z"))


@pytest.mark.parametrize(
    "value",
    [
        *(1.0, -0.0, 1 + 2**-23, 2.0**-126, 2.0**-149, (2 - 2**-23) * 2.0**127, float("inf"), float("nan")),
        *(1 + 2**-24, 2.0**-150, 2.0**-126 + 2.0**-150, (2 - 2**-24) * 2.0**127, 1e39, 0.1, 1e-45),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_float32_is_taken_if_it_has_this_very_value(value: float, sign: int) -> None:
    with np.errstate(over="ignore"):
        nearest = float(np.float32(sign * value))
    if nearest == sign * value or value != value:
        assert repr(row(single=sign * value)["single"]) == repr(sign * value)
    else:
        with pytest.raises(SchemaMismatch, match="column single"):
            row(single=sign * value)


@pytest.mark.parametrize("text", ["0.00", "-0.00", "999.99", "-999.99", "1.50", "0.01", "1.5", "7", "1E+2", "0.010"])
def test_a_decimal_is_taken_if_it_fits(text: str) -> None:
    found = row(price=Decimal(text))["price"]

    assert isinstance(found, Decimal)
    assert (found, found.is_signed()) == (Decimal(text), text.startswith("-"))
    assert found.as_tuple().exponent == -2


@pytest.mark.parametrize("text", ["1000.00", "-1000.00", "12345678.90", "0.001", "1E+3", "Infinity", "NaN", "sNaN"])
def test_a_decimal_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(SchemaMismatch, match="column price"):
        row(price=Decimal(text))


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        *((f"int{bits}", (-(1 << bits - 1), (1 << bits - 1) - 1, 0)) for bits in (8, 16, 32, 64)),
        *((f"uint{bits}", (0, (1 << bits) - 1, 1)) for bits in (8, 16, 32, 64)),
        ("float32", (-0.0, (2 - 2**-23) * 2.0**127, float("-inf"))),
        ("float64", (-0.0, 5e-324, 1.7976931348623157e308)),
    ],
)
@pytest.mark.parametrize("null_at", [None, 0, 2])
def test_numbers_of_a_batch_are_the_values_that_were_sent(
    type_: str, values: tuple[float, ...], null_at: int | None
) -> None:
    columns = (Column("c", type_, nullable=True), Column("d", "int8", nullable=True))
    encoder = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=64, schema=columns)))
    sent = [None if at == null_at else value for at, value in enumerate(values)]

    array, _ = encoder.columns_of([item for value in sent for item in encoder.rows.convert({"c": value})[0]])

    array.validate(full=True)
    assert array.type == encoder.body_schema.field("c").type
    assert repr(array.to_pylist()) == repr(sent)


TOKYO = BatchEncoder(
    Topic(
        "default/t",
        "u",
        TopicSpec(
            partitions=64,
            schema=(
                Column("at", "timestamp[us, Asia/Tokyo]"),
                Column("ms", "timestamp[ms, Asia/Tokyo]", nullable=True),
            ),
        ),
    )
)


@pytest.mark.parametrize("column", ["at", "ms"])
def test_a_time_that_is_in_the_year_10000_in_the_zone_of_its_column_is_refused(column: str) -> None:
    late = {"at": datetime(2024, 1, 1, tzinfo=UTC), column: datetime(9999, 12, 31, 15, tzinfo=UTC)}

    with pytest.raises(SchemaMismatch, match=f"column {column}: .*9999.* does not fit .*Tokyo.*the years 1 to 9999"):
        check_value(late, TOKYO)
    with pytest.raises(SchemaMismatch, match=f"column {column}, row 0: 9999-12-31.*the years 1 to 9999"):
        TOKYO.check(pa.Table.from_pylist([late]))
    check_value(late | {column: datetime(9999, 12, 31, 14, tzinfo=UTC)}, TOKYO)


@pytest.mark.parametrize(
    ("column", "value", "type_"),
    [
        ("local", (1 << 63) - 1, pa.timestamp("us")),  # what DuckDB's infinity is
        ("local", -(1 << 42), pa.timestamp("s")),
        ("at", 1 << 62, pa.timestamp("us", "UTC")),
        ("clock", 86_400_000_000, pa.time64("us")),  # DuckDB's 24:00:00
        ("timestamp", 1_700_000_000_000_000_000, pa.int64()),
        ("timestamp", 1 << 62, pa.timestamp("us")),
        ("timestamp", 1 << 62, pa.timestamp("us", "UTC")),
    ],
)
def test_times_of_tables_that_python_does_not_have_are_refused_with_their_row(
    column: str, value: int, type_: pa.DataType
) -> None:
    table = pa.table({"id": pa.array([1, 2], pa.int32()), column: pa.array([0, value], type_)})

    with pytest.raises(SchemaMismatch, match=f"column {column}, row 1: .*the years 1 to 9999"):
        TYPED.check(table)


@pytest.mark.parametrize(
    "timestamp",
    [1_700_000_000_000_000_000, -(1 << 62), 1 << 70, datetime.max.replace(tzinfo=timezone(-timedelta(hours=9)))],
)
def test_a_timestamp_that_python_does_not_have_is_refused(timestamp: object) -> None:
    with pytest.raises(InvalidRequest, match=r"not in the years 1 to 9999.*in microseconds"):
        check_timestamp(timestamp)


@pytest.mark.parametrize("kind", [pa.list_view, pa.large_list_view, pa.large_list, pa.list_])
def test_lists_of_all_kinds_keep_their_items(kind: Any) -> None:
    tags = pa.array([["a"], ["b", "c"], None, []], kind(pa.string()))

    for at in range(4):
        table = pa.table({"id": pa.array(range(4 - at), pa.int32()), "tags": tags[at:]})
        checked, _ = TYPED.check(table)
        assert checked["tags"].to_pylist() == [["a"], ["b", "c"], None, []][at:]
    checked, _ = TYPED.check(pa.table({"id": pa.array([1, 2], pa.int32()), "tags": tags.take(pa.array([1, 0]))}))
    assert checked["tags"].to_pylist() == [["b", "c"], ["a"]]


@pytest.mark.parametrize("values", [pa.string_view(), pa.string(), pa.large_string()])
def test_dictionaries_of_all_kinds_of_text_are_text(values: pa.DataType) -> None:
    names = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), pa.array(["a", "b"], values))

    checked, _ = TYPED.check(pa.table({"id": pa.array(range(3), pa.int32()), "name": names}))
    assert checked["name"].to_pylist() == ["b", None, "a"]
    assert canonical_bytes(names).to_pylist() == [b"b", None, b"a"]


def test_a_key_is_bytes_of_any_kind_and_no_list() -> None:
    assert canonical_bytes(pa.array([b"\xff", None], pa.binary_view())).to_pylist() == [b"\xff", None]
    with pytest.raises(InvalidRequest, match="cannot be a key"):
        canonical_bytes(pa.array([[1]]))
