import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.units import duration_text, parse_duration, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [(5, 5), ("5", 5), ("1Ki", 1024), ("32Mi", 33_554_432), ("1.5Gi", 1_610_612_736), ("2k", 2000), ("1T", 10**12)],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("1us", 1),
        ("500ms", 500_000),
        ("5s", 5_000_000),
        ("1.5s", 1_500_000),
        ("1h30m", 5_400_000_000),
        ("7d", 604_800_000_000),
    ],
)
def test_durations(text: str, duration: int) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "Mi", "-1", "1 Mi", "1mi", "1MB", "1.2.3", None, True, 1.5, []])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match=r"32Mi|unit"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "5", 5, "s", "-5s", "5S", "5 s", "5s5", "1w", None])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match=r"5s|unit"):
        parse_duration(text)


@given(st.integers(0, 8 * 10**15))
def test_text_is_exact(amount: int) -> None:
    assert parse_size(size_text(amount)) == amount
    assert parse_duration(duration_text(amount)) == amount
