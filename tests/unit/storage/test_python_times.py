"""Times that Python does not have: producers refuse them, and readers get the nearest ones."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from smq_storage.chunks.python_times import all_in_python, in_python, python_values, time_of_micros

MICROS = pa.timestamp("us")
TOKYO = pa.timestamp("us", "Asia/Tokyo")
NEW_YORK = pa.timestamp("ms", "America/New_York")
# Far beyond the year 9999, in any unit.
LATE = 1 << 62


@pytest.mark.parametrize(
    ("value", "type_", "known"),
    [
        (datetime.max, MICROS, True),
        (datetime.min, MICROS, True),
        (None, MICROS, True),
        (LATE, MICROS, False),
        (-LATE, pa.timestamp("s"), False),
        (LATE, pa.timestamp("ns"), True),
        (date.max, pa.date32(), True),
        ((1 << 31) - 1, pa.date32(), False),
        (86_400_000_000, pa.time64("us"), False),
        (86_399_999_999, pa.time64("us"), True),
        (datetime(9999, 12, 31, 14, 59, tzinfo=UTC), TOKYO, True),
        (datetime(9999, 12, 31, 15, tzinfo=UTC), TOKYO, False),
        (datetime(1, 1, 1, 12, tzinfo=UTC), NEW_YORK, True),
        (datetime(1, 1, 1, 1, tzinfo=UTC), NEW_YORK, False),
    ],
)
def test_python_has_the_years_1_to_9999_of_each_zone(value: object, type_: pa.DataType, known: bool) -> None:
    found = pa.array([None, value], type_)

    assert all_in_python(found) is known
    assert len(python_values(pa.table({"at": found}))) == 2, "readers never fail"


def test_readers_get_the_nearest_time_and_all_others_as_they_are() -> None:
    late = [None, 5, LATE, -LATE]
    inside = [None, [], [5, LATE], [-LATE]]
    table = pa.table(
        {
            "at": pa.array(late, MICROS),
            "tokyo": pa.array([None, 5, LATE, int(datetime.max.replace(tzinfo=UTC).timestamp()) * 10**6], TOKYO),
            "list": pa.array(inside, pa.list_(MICROS)),
            "map": pa.array([None, [], [("a", LATE)], [("b", 5)]], pa.map_(pa.string(), MICROS)),
            "struct": pa.array([None, {"at": 5}, {"at": LATE}, {"at": None}], pa.struct([("at", MICROS)])),
            "other": [1, 2, 3, 4],
        }
    )
    five = datetime(1970, 1, 1, microsecond=5)

    for rows in (in_python(table).to_pylist(), in_python(table.slice(1)).to_pylist()):
        *_, second, third, fourth = rows
        assert [row["at"] for row in (second, third, fourth)] == [five, datetime.max, datetime.min]
        assert second["tokyo"].astimezone(UTC).replace(tzinfo=None) == five
        assert third["tokyo"].year == fourth["tokyo"].year == 9999
        assert [row["list"] for row in (second, third, fourth)] == [[], [five, datetime.max], [datetime.min]]
        assert (third["map"], fourth["map"]) == ([("a", datetime.max)], [("b", five)])
        assert (third["struct"], fourth["struct"]) == ({"at": datetime.max}, {"at": None})
        assert fourth["other"] == 4
    assert in_python(table).to_pylist()[0] == dict.fromkeys(table.column_names[:-1]) | {"other": 1}
    assert python_values(table) == in_python(table).to_pylist()


def test_nanoseconds_can_be_read_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"at": pa.array([1_001, None, -1_001], pa.timestamp("ns"))})
    monkeypatch.setitem(sys.modules, "pandas", None)

    before = datetime(1969, 12, 31, 23, 59, 59, 999_999)
    assert in_python(table)["at"].to_pylist() == [datetime(1970, 1, 1, microsecond=1), None, before]


def test_microseconds_are_exact_and_never_fail() -> None:
    assert time_of_micros(1_700_000_000_123_457) == datetime(2023, 11, 14, 22, 13, 20, 123_457, UTC)
    assert (time_of_micros(LATE), time_of_micros(-LATE)) == (
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
    )
