"""Single messages and tables have one rule: a value is stored exactly as it is, or refused."""

from __future__ import annotations

import math
import struct
import threading
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smq.producing.batching.batch_builder import BatchBuilder, check_value
from smq.producing.delivery_state import OPEN_ROW_COUNT, DeliveryState
from smq.producing.encoding.batch_encoder import BatchEncoder, split_rows
from smq.producing.encoding.keys import KeylessPartitioner
from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Column, Topic, TopicSpec
from smq_storage.chunks.column_types import as_declared

INTEGERS = {f"{sign}int{bits}": (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}
DECIMALS = {
    "decimal128(5, 2)": (5, 2),
    "decimal128(38, 0)": (38, 0),
    "decimal128(20, 20)": (20, 20),
    "decimal256(60, 20)": (60, 20),
}
NANOS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
TIMESTAMPS = {
    "timestamp[us]": ("us", False),
    "timestamp[us, UTC]": ("us", True),
    "timestamp[s]": ("s", False),
    "timestamp[ms, Europe/Berlin]": ("ms", True),
    "timestamp[ns]": ("ns", False),
    "timestamp[ns, UTC]": ("ns", True),
}
TIMES_OF_DAY = {"time": "us", "time32[s]": "s", "time32[ms]": "ms", "time64[ns]": "ns"}
SCALARS = (
    "bool",
    *INTEGERS,
    "float32",
    "float64",
    *DECIMALS,
    "string",
    "binary",
    "date",
    *TIMESTAMPS,
    *TIMES_OF_DAY,
    "dictionary<string>",
)
NESTED = (
    "struct<x: int8>",
    "struct<x: timestamp[s]>",
    "list<struct<x: string>>",
    "map<string, int8>",
    "map<date, timestamp[ms]>",
    "struct<x: map<string, list<float32>>>",
)
TYPES = (*SCALARS, *(f"list<{name}>" for name in SCALARS), *NESTED)

LIMITS = [
    sign * (1 << bits) + by
    for bits in (7, 8, 15, 16, 24, 31, 32, 53, 54, 62, 63, 64)
    for sign in (1, -1)
    for by in (-1, 0, 1)
]
zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-12))])
values = st.one_of(
    st.booleans(),
    st.sampled_from([n for n in LIMITS if -(1 << 63) <= n < 1 << 64]),
    st.integers(-300, 300),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.floats(width=32),
    st.sampled_from(
        [
            3.4028235677973366e38,
            1.0,
            -0.0,
            1.5,
            2.0**53,
            2.0**63,
            2.0**64,
            -(2.0**63),
            float("nan"),
            float("inf"),
            1e300,
        ]
    ),
    st.integers(-300, 300).map(float),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-2000, max_value=2000),
    st.sampled_from(
        [Decimal(text) for text in ("1", "1.0", "1.50", "1.505", "1E+3", "999.99", "1000", "-0.00", "1E-20")]
    ),
    st.text(max_size=5),
    st.sampled_from(["1", "7", "1.5", "true", "2024-01-01", "NaN"]),
    st.binary(max_size=5),
    st.dates(),
    st.datetimes(),
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones),
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(lambda at: at.replace(microsecond=0)),
    st.times(),
    st.times().map(lambda at: at.replace(microsecond=0)),
)
inside = st.one_of(values, st.lists(values, max_size=2))
nested = st.one_of(
    st.dictionaries(st.sampled_from(["x", "y"]), inside, min_size=1, max_size=2),
    st.lists(st.dictionaries(st.just("x"), inside, min_size=1), min_size=1, max_size=1),
    st.lists(st.tuples(st.one_of(st.text(max_size=3), st.dates(), st.none()), inside), max_size=2),
    st.fixed_dictionaries({"x": st.lists(st.tuples(st.text(max_size=3), inside), max_size=2)}),
)


def encoder_of(type_: str) -> BatchEncoder:
    spec = TopicSpec(partitions=8, schema=(Column("c", type_, nullable=True), Column("d", "int8", nullable=True)))
    return BatchEncoder(Topic("default/t", "u", spec))


ENCODERS = {name: encoder_of(name) for name in TYPES}


def sent(type_: str, value: object) -> pa.Array | None:
    """The column that ``send`` stores, or None if it refuses."""
    encoder = ENCODERS[type_]
    try:
        row, size = check_value({"c": value}, encoder)
    except SchemaMismatch:
        return None
    builder = BatchBuilder(encoder, DeliveryState(OPEN_ROW_COUNT, threading.Lock()), 0.0)
    builder.add(row, None, 0)
    batch = builder.to_rows(KeylessPartitioner(8, 0)).encode()
    offsets = 8 * (1 + type_.count("<") + type_.count("map<"))
    assert size >= batch.column("c").nbytes - offsets  # validity and the first offset, at each level
    return as_declared(batch).column("c")


def written(type_: str, array: pa.Array) -> pa.Array | None:
    """The column that ``write`` stores, or None if it refuses."""
    encoder = ENCODERS[type_]
    try:
        table, key = encoder.check(pa.table({"c": array}))
    except SchemaMismatch:
        return None
    (part,) = split_rows(table, 1 << 20)
    return as_declared(encoder.encode(part, key, 0, KeylessPartitioner(8, 0))[0]).column("c")


def fits(type_: str, value: object) -> bool:
    """Whether a column of that type has this very value."""
    if type_.startswith("list<"):
        return isinstance(value, list) and all(it is None or fits(type_[5:-1], it) for it in value)
    if type_.startswith("struct<x: "):
        return isinstance(value, dict) and value.keys() <= {"x"} and fits_or_null(type_[10:-1], value.get("x"))
    if type_.startswith("map<"):
        key, item = type_[4:-1].split(", ", 1)
        pairs = list(value.items()) if isinstance(value, dict) else value
        return isinstance(pairs, list) and all(
            isinstance(pair, tuple) and len(pair) == 2 and fits(key, pair[0]) and fits_or_null(item, pair[1])
            for pair in pairs
        )
    number = type(value) in (int, float, Decimal)
    exact = Fraction(value) if number and math.isfinite(value) else None  # type: ignore[arg-type]
    if type_ in INTEGERS:
        sign, bits = INTEGERS[type_]
        low, high = (0, 1 << bits) if sign else (-(1 << bits - 1), 1 << bits - 1)
        return exact is not None and exact.denominator == 1 and low <= exact < high
    if type_ in DECIMALS:
        precision, scale = DECIMALS[type_]
        scaled = exact * 10**scale if exact is not None else Fraction(1, 2)
        return type(value) is not float and scaled.denominator == 1 and abs(scaled) < 10**precision
    if type_ in ("float32", "float64"):
        return type(value) in (int, float) and (exact is None or Fraction(nearest(type_, value)) == exact)  # type: ignore[arg-type]
    if type_ in TIMESTAMPS or type_ == "timestamp[ms]":
        unit, zoned = TIMESTAMPS.get(type_, ("ms", False))
        if not isinstance(value, datetime) or (value.tzinfo is not None) != zoned:
            return False
        micros = (value - datetime(1970, 1, 1, tzinfo=UTC if zoned else None)) // timedelta(microseconds=1)
        return micros * 1000 % NANOS[unit] == 0 and abs(micros * 1000) < (1 << 63) * NANOS[unit]
    if type_ in TIMES_OF_DAY:
        return type(value) is time and value.microsecond * 1000 % NANOS[TIMES_OF_DAY[type_]] == 0
    python = {"bool": bool, "string": str, "dictionary<string>": str, "binary": bytes, "date": date}
    return type(value) is python[type_]


def fits_or_null(type_: str, value: object) -> bool:
    return value is None or fits(type_, value)


def nearest(type_: str, value: float) -> float:
    """The nearest float to a finite value; for one out of range another value."""
    try:
        found = float(value)
        found = struct.unpack("f", struct.pack("f", found))[0] if type_ == "float32" else found
    except OverflowError:
        return 0.0
    return found if math.isfinite(found) else 0.0


def same(stored: object, value: object) -> bool:
    if isinstance(stored, list) and isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, dict):
        known = isinstance(stored, dict) and value.keys() <= stored.keys()
        return known and all(same(stored[name], value.get(name)) for name in stored)  # type: ignore[index, union-attr]
    if isinstance(value, list | tuple):
        return type(stored) is type(value) and len(stored) == len(value) and all(map(same, stored, value))
    return stored == value or (value != value and stored != stored)


def arrays_of(value: object) -> list[pa.Array]:
    """The value as the columns of tables that have it exactly."""
    found = []
    for type_ in (None, *ARRAY_TYPES):
        try:
            array = pa.array([value], type_)
            back = array.to_pylist()[0]
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            continue
        if type(back) is type(value) and same(back, value):
            found.append(array)
    return found


ARRAY_TYPES = (
    *(getattr(pa, name)() for name in INTEGERS),
    pa.float32(),
    pa.float64(),
    pa.decimal128(38, 3),
    pa.decimal256(60, 20),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.large_binary(),
    pa.date64(),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Kolkata")),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.map_(key, item) for key in (pa.string(), pa.date32()) for item in (pa.int8(), pa.int64(), pa.timestamp("us"))),
    pa.struct([("x", pa.map_(pa.string(), pa.list_(pa.float64())))]),
)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(TYPES), st.one_of(values, st.lists(values, min_size=1, max_size=1), nested))
@example("int32", 1.5)
@example("int32", "1")
@example("int32", "7")
@example("int32", True)
@example("float64", (1 << 53) + 1)
@example("float64", 1 << 60)
@example("uint64", (1 << 64) - 1)
@example("float32", 0.1)
@example("string", b"x")
@example("binary", "x")
@example("date", datetime(2024, 1, 1, 12))
@example("timestamp[us, UTC]", datetime(2024, 1, 1))
@example("timestamp[us]", datetime(2024, 1, 1, tzinfo=UTC))
@example("timestamp[us]", date(2024, 1, 1))
@example("timestamp[us]", 5)
@example("list<int32>", [1.5])
@example("list<int32>", "1")
@example("decimal128(5, 2)", 0.5)
@example("decimal128(38, 0)", (1 << 64) - 1)
@example("decimal128(5, 2)", Decimal("1.505"))
@example("timestamp[s]", datetime(2024, 1, 1))
@example("timestamp[s]", datetime(2024, 1, 1, microsecond=1))
@example("timestamp[ns]", datetime(1600, 1, 1))
@example("timestamp[ms, Europe/Berlin]", datetime(2024, 1, 1, tzinfo=UTC))
@example("time32[s]", time(12, 30))
@example("time32[ms]", time(12, 30, microsecond=1))
@example("time", datetime(2024, 1, 1))
@example("dictionary<string>", "a")
@example("struct<x: int8>", {"x": 1})
@example("struct<x: int8>", {"y": 1})
@example("struct<x: int8>", {"x": 1.5})
@example("struct<x: timestamp[s]>", {"x": datetime(2024, 1, 1)})
@example("list<struct<x: string>>", [{"x": "a"}])
@example("map<string, int8>", {"a": 1, "b": None})
@example("map<string, int8>", [("a", 1), ("a", 2)])
@example("map<string, int8>", [(None, 1)])
@example("map<string, int8>", [("a", 300)])
@example("map<date, timestamp[ms]>", [(date(2024, 1, 1), datetime(2024, 1, 1))])
@example("struct<x: map<string, list<float32>>>", {"x": [("a", [0.5, None])]})
def test_both_store_the_very_value_or_both_refuse_it(type_: str, value: object) -> None:
    single = sent(type_, value)

    assert (single is not None) == fits(type_, value), "send stores what fits, and nothing else"
    for array in arrays_of(value):
        if "map<" in type_ and "map<" not in str(array.type):
            continue  # what is a map for send may be a struct for Arrow, which makes no maps by itself
        whole = written(type_, array)
        assert (whole is not None) == (single is not None), f"write of {array.type}"
        assert whole is None or same(whole.to_pylist()[0], single.to_pylist()[0])  # type: ignore[union-attr]
    if single is not None:
        assert same(single.to_pylist()[0], value)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(("int8", "float32", "list<int8>")), st.integers(0, 40), st.integers(0, 40), st.integers(0, 41))
def test_the_row_that_does_not_fit_is_named(type_: str, before: int, after: int, split: int) -> None:
    good, bad, wide = {
        "int8": (5, 300, pa.int64()),
        "float32": (0.5, 0.1, pa.float64()),
        "list<int8>": ([1, None], [1, 300], pa.large_list(pa.int64())),
    }[type_]
    column = [*[good] * before, bad, *[good, None] * after]
    array = pa.chunked_array([column[:split], column[split:]], wide)

    with pytest.raises(SchemaMismatch, match=f"column c, row {before}: "):
        ENCODERS[type_].check(pa.table({"c": array}))
