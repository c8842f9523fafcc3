"""Readable numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from smq.cli.output import formatting
from smq_core.model.units import format_size, format_time


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (32 << 20, "32 MiB"), (5 << 50, "5120 TiB")]
)
def test_sizes(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


@pytest.mark.parametrize(("number", "text"), [(7, "7"), (999, "999"), (1234, "1.2k"), (336_776, "337k"), (2e6, "2M")])
def test_counts(number: float, text: str) -> None:
    assert formatting.count(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d"), (-5, "0s")]
)
def test_ages(seconds: int, text: str) -> None:
    since = datetime(2023, 11, 14, tzinfo=UTC)
    assert formatting.age(since, since + timedelta(seconds=seconds)) == text


def test_an_unknown_age_is_a_dash() -> None:
    assert formatting.age(None, datetime.now(UTC)) == "–"


def test_nothing_flowing_is_a_dash() -> None:
    assert formatting.rate(0, 0) == "–"
    assert formatting.rate(50_000, 32 << 20) == "50k/s  32 MiB/s"


def test_the_default_namespace_is_not_typed() -> None:
    assert formatting.topic("default/flights") == "flights"
    assert formatting.topic("travel/flights") == "travel/flights"


def test_times_are_shown_in_utc() -> None:
    in_berlin = datetime(2023, 11, 14, 23, 13, 20, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(in_berlin) == "2023-11-14T22:13:20.000000Z"
    assert format_time(datetime(2023, 11, 14)) == "2023-11-14T00:00:00.000000", "it has no zone"
