"""What a sealed segment has lost, by what its replicas report: the range only grows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model.entities import Reason, SealedSegment
from smq_core.model.keyspace import KeyRange
from smq_core.model.lost_range import LostOffsets, lost_range, raise_loss

ENTRY = SealedSegment("t-0-8-0", 0, KeyRange(0, 8), 100, (), (), Reason.CREATE, Reason.FAILOVER, 1, 2)


@pytest.mark.parametrize(
    ("recorded", "watermark", "lost"),
    [
        (None, 0, None),
        (None, 99, None),
        (None, 100, None),
        (None, 101, (100, 101)),
        ((100, 120), 0, (100, 120)),
        ((100, 120), 100, (100, 120)),
        ((100, 120), 119, (100, 120)),
        ((100, 120), 120, (100, 120)),
        ((100, 120), 150, (100, 150)),
    ],
)
def test_a_watermark_beyond_the_end_is_a_loss(
    recorded: LostOffsets | None, watermark: int, lost: LostOffsets | None
) -> None:
    assert lost_range(100, recorded, watermark) == lost
    start, stop = recorded or (None, None)
    entry = replace(ENTRY, lost_from=start, lost_to=stop)
    raised = raise_loss(entry, watermark)
    assert (raised.lost_from, raised.lost_to) == (lost or (None, None))
    assert (raised is entry) == (lost == recorded)
    assert raise_loss(raised, watermark) is raised, "the same report again"
    assert replace(raised, lost_from=start, lost_to=stop) == entry, "nothing else changes"


def test_reports_may_come_in_any_order() -> None:
    assert raise_loss(raise_loss(ENTRY, 150), 120) == raise_loss(raise_loss(ENTRY, 120), 150)
