"""Numbers as people read them."""

from __future__ import annotations

import pytest

from smq.cli import words


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (32 << 20, "32 MiB"), (5 << 50, "5120 TiB")]
)
def test_sizes(nbytes: int, text: str) -> None:
    assert words.size(nbytes) == text


@pytest.mark.parametrize(("number", "text"), [(7, "7"), (999, "999"), (1234, "1.2k"), (336_776, "337k"), (2e6, "2M")])
def test_counts(number: float, text: str) -> None:
    assert words.count(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d"), (-5, "0s")]
)
def test_ages(seconds: int, text: str) -> None:
    assert words.age(1_000_000, 1_000_000 + seconds * 1_000_000) == text


def test_nothing_flowing_is_a_dash() -> None:
    assert words.rate(0, 0) == "–"
    assert words.rate(50_000, 32 << 20) == "50k/s  32 MiB/s"


def test_the_default_namespace_is_not_typed() -> None:
    assert words.topic("default/flights") == "flights"
    assert words.topic("travel/flights") == "travel/flights"


def test_times_are_told_in_utc() -> None:
    assert words.iso(1_700_000_000_123_456) == "2023-11-14T22:13:20.123Z"
