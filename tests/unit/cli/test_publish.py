"""What `smq publish` says when it is done."""

from __future__ import annotations

import pytest

from smq.cli.commands.publish import _duration


@pytest.mark.parametrize(
    ("messages", "seconds", "text"),
    [(1, 0.5, "0.5 s"), (3, 5.5, "5.5 s"), (2, 0.5, "0.5 s (4/s)"), (300_000, 2.0, "2.0 s (150k/s)")],
)
def test_a_rate_that_says_nothing_is_left_out(messages: int, seconds: float, text: str) -> None:
    assert _duration(messages, seconds) == text
