"""The loss that a reader reports for a segment whose seal says that offsets are lost."""

from __future__ import annotations

import pytest

from smq.consuming.fetcher import lost_range_for_reader


@pytest.mark.parametrize(
    ("position", "end", "lost", "reported"),
    [
        (5, 5, None, None),
        (5, 5, (5, 5), None),  # the end of the loss is unknown
        (5, 5, (5, 7), (5, 7)),
        (3, 5, (5, 7), (5, 7)),
        (9, 5, (5, 7), (5, 9)),  # it received messages above the watermark that the leader knew
        (2, 0, (0, 1), (0, 2)),
    ],
)
def test_losses_reported_to_a_reader(
    position: int, end: int, lost: tuple[int, int] | None, reported: tuple[int, int] | None
) -> None:
    assert lost_range_for_reader(position, end, lost) == reported
