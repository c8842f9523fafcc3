"""What a sealed segment has lost, by what was acked: the range only grows, and what is unknown stays so."""

from __future__ import annotations

import pytest

from smq_core.model.entities import Reason, SealedSegment
from smq_core.model.keyspace import KeyRange
from smq_core.model.lost_range import LostRange, lost_range
from smq_core.model.sealed_losses import merge_loss, raise_loss, with_lost

ENTRY = SealedSegment("t-0-8-0", 0, KeyRange(0, 8), 100, (), (), Reason.CREATE, Reason.FAILOVER, 1, 2)
KNOWN, OPEN, POSSIBLE = LostRange(100, 120), LostRange(100, 120, True), LostRange(100, 100, True)


@pytest.mark.parametrize(
    ("recorded", "acked_upto", "lost"),
    [
        (None, 0, None),
        (None, 99, None),
        (None, 100, None),
        (None, 101, LostRange(100, 101, True)),
        (KNOWN, 0, KNOWN),
        (KNOWN, 100, KNOWN),
        (KNOWN, 119, KNOWN),
        (KNOWN, 120, KNOWN),
        (KNOWN, 150, LostRange(100, 150)),
        (OPEN, 120, OPEN),
        (OPEN, 150, LostRange(100, 150, True)),
        (POSSIBLE, 100, POSSIBLE),
        (POSSIBLE, 101, LostRange(100, 101, True)),
    ],
)
def test_an_ack_beyond_the_end_is_a_loss(recorded: LostRange | None, acked_upto: int, lost: LostRange | None) -> None:
    assert lost_range(100, recorded, acked_upto) == lost
    entry = with_lost(ENTRY, recorded)
    raised = raise_loss(entry, acked_upto)
    assert raised.lost == lost
    assert (raised is entry) == (lost == recorded)
    assert raise_loss(raised, acked_upto) is raised, "the same report again"
    assert with_lost(raised, recorded) == entry, "nothing else changes"


def test_reports_may_come_in_any_order() -> None:
    assert raise_loss(raise_loss(ENTRY, 150), 120) == raise_loss(raise_loss(ENTRY, 120), 150)


@pytest.mark.parametrize(
    ("read", "known", "merged"),
    [
        (None, None, None),
        (OPEN, None, OPEN),
        (POSSIBLE, OPEN, OPEN),
        (OPEN, POSSIBLE, OPEN),
        (KNOWN, OPEN, OPEN),
        (KNOWN, POSSIBLE, OPEN),
        (KNOWN, LostRange(100, 130), LostRange(100, 130)),
    ],
)
def test_an_older_index_takes_nothing_back(
    read: LostRange | None, known: LostRange | None, merged: LostRange | None
) -> None:
    assert merge_loss(with_lost(ENTRY, read), with_lost(ENTRY, known)).lost == merged
    assert merge_loss(with_lost(ENTRY, read), None).lost == read


@pytest.mark.parametrize(
    ("lost", "certain", "text"),
    [
        (KNOWN, True, "offsets 100 to 120"),
        (OPEN, True, "offsets 100 to at least 120"),
        (POSSIBLE, False, "possibly offsets from 100 on"),
    ],
)
def test_a_possible_loss_is_distinguished(lost: LostRange, certain: bool, text: str) -> None:
    assert (lost.is_certain, lost.is_empty, str(lost)) == (certain, False, text)


def test_an_empty_range_of_an_earlier_version_is_no_loss() -> None:
    assert LostRange(5, 5).is_empty and with_lost(ENTRY, LostRange(100, 100)).lost is None
