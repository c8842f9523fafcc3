"""What a sealed segment has lost, by what was acked: the range only grows, and what is unknown stays so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model.entities import Reason, SealedSegment
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss, loss_beyond
from smq_core.model.sealed_losses import merge_loss, raise_loss

ENTRY = SealedSegment(
    name="t-0-8-0",
    number=0,
    range=KeyRange(0, 8),
    end=100,
    predecessors=(),
    successors=(),
    opened_because=Reason.CREATE,
    sealed_because=Reason.FAILOVER,
    opened_at=1,
    sealed_at=2,
)
KNOWN, OPEN, POSSIBLE = Loss(100, 120), Loss(100, 120, True), Loss(100, 100, True)


@pytest.mark.parametrize(
    ("recorded", "acked_upto", "lost"),
    [
        (None, 0, None),
        (None, 99, None),
        (None, 100, None),
        (None, 101, Loss(100, 101, True)),
        (KNOWN, 0, KNOWN),
        (KNOWN, 100, KNOWN),
        (KNOWN, 119, KNOWN),
        (KNOWN, 120, KNOWN),
        (KNOWN, 150, Loss(100, 150)),
        (OPEN, 120, OPEN),
        (OPEN, 150, Loss(100, 150, True)),
        (POSSIBLE, 100, POSSIBLE),
        (POSSIBLE, 101, Loss(100, 101, True)),
    ],
)
def test_an_ack_beyond_the_end_is_a_loss(recorded: Loss | None, acked_upto: int, lost: Loss | None) -> None:
    assert loss_beyond(100, recorded, acked_upto) == lost
    entry = replace(ENTRY, lost=recorded)
    raised = raise_loss(entry, acked_upto)
    assert raised.lost == lost
    assert (raised is entry) == (lost == recorded)
    assert raise_loss(raised, acked_upto) is raised, "the same report again"
    assert replace(raised, lost=recorded) == entry, "nothing else changes"


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
        (KNOWN, Loss(100, 130), Loss(100, 130)),
    ],
)
def test_an_older_index_takes_nothing_back(read: Loss | None, known: Loss | None, merged: Loss | None) -> None:
    assert merge_loss(replace(ENTRY, lost=read), replace(ENTRY, lost=known)).lost == merged
    assert merge_loss(replace(ENTRY, lost=read), None).lost == read


@pytest.mark.parametrize(
    ("lost", "certain", "text"),
    [
        (KNOWN, True, "offsets 100 to 120"),
        (OPEN, True, "offsets 100 to at least 120"),
        (POSSIBLE, False, "possibly offsets from 100 on"),
    ],
)
def test_a_possible_loss_is_distinguished(lost: Loss, certain: bool, text: str) -> None:
    assert (lost.is_certain, lost.is_empty, str(lost)) == (certain, False, text)


def test_an_empty_range_of_an_earlier_version_is_no_loss() -> None:
    assert Loss(5, 5).is_empty
