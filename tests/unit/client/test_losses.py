"""What a reader is told of a segment whose seal says that offsets are lost."""

from __future__ import annotations

import pytest

from smq.losses import lost_to_reader


@pytest.mark.parametrize(
    ("position", "end", "lost", "told"),
    [
        (5, 5, None, None),
        (5, 5, (5, 5), None),  # nobody knows how far it went
        (5, 5, (5, 7), (5, 7)),
        (3, 5, (5, 7), (5, 7)),
        (9, 5, (5, 7), (5, 9)),  # it was given more than the leader had heard of
        (2, 0, (0, 1), (0, 2)),
    ],
)
def test_what_is_told(position: int, end: int, lost: tuple[int, int] | None, told: tuple[int, int] | None) -> None:
    assert lost_to_reader(position, end, lost) == told
