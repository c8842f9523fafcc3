"""The story of a topic: which events it has, in which order and words, and that it never outgrows its limits."""

from __future__ import annotations

import sys

import pytest

from smq_core.errors import NotHosted, StoreUnavailable, Unreachable
from smq_core.model.segment_action import SegmentAction
from smq_core.reconcile.answers import ReplicaOpened
from smq_core.reconcile.effects import OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.topic_reconciler import OPEN_RETRY_DELAY, RESYNC_AFTER
from smq_core.reconcile.topic_story import MAX_BYTES, MAX_DETAIL_LENGTH, MAX_EVENTS, TopicStory
from support.in_memory.reconciler import ReconcilerHarness


def shown(harness: ReconcilerHarness) -> list[str]:
    return [f"{it.kind} {it.segment} {it.detail}" for it in harness.leader.story.events]


def test_it_has_every_effect_and_every_answer_in_order() -> None:
    harness = ReconcilerHarness().begun()
    assert shown(harness) == [
        "LayoutRead  there is none yet",
        "PutLayout  version 1: t-0-16-0 open on b0, b1",
        "LayoutWritten  version 1",
        "OpenReplica t-0-16-0 b0, incarnation i0",
        "OpenReplica t-0-16-0 b1, incarnation i1",
        "ReplicaOpened t-0-16-0 b0, incarnation i0",
        "ReplicaOpened t-0-16-0 b1, incarnation i1",
    ]
    began = len(harness.leader.story.events)
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    harness.run()
    assert shown(harness)[began : began + 3] == [
        "ChangeRequested  roll t-0-16-0",
        "PutLayout  version 2: t-0-16-0 sealing (Manual), then t-0-16-1; t-0-16-1 pending on b0, b1",
        "LayoutWritten  version 2",
    ]
    of_the_old = [it.kind for it in harness.leader.story.events if it.segment == "t-0-16-0"]
    assert of_the_old[4:] == ["FlushAhead", "TailFlushed", "RequestSeal", "Sealed", "RequestSeal"], (
        "each replica releases it"
    )
    assert "PutLayout  version 3: t-0-16-1 open on b0, b1; gone: t-0-16-0" in shown(harness)


def test_a_read_that_shows_nothing_new_is_no_event() -> None:
    harness = ReconcilerHarness().begun()
    before = shown(harness)
    harness.answer(harness.step(RESYNC_AFTER))
    assert shown(harness) == before
    harness.step(RESYNC_AFTER)
    harness.fail(ReadLayout(), StoreUnavailable("it is away"))
    assert shown(harness) == [*before, "ReadLayoutFailed  StoreUnavailable: it is away"]


def test_an_event_that_repeats_itself_is_counted() -> None:
    harness = ReconcilerHarness()
    harness.answer(harness.step())
    harness.answer(harness.step())
    opened = [effect for effect in harness.step() if isinstance(effect, OpenReplica)]
    began = harness.now
    for _ in range(30):
        harness.fail(opened[0], Unreachable("no route"))
        assert harness.step(OPEN_RETRY_DELAY) == [opened[0]]
    (failed,) = (it for it in harness.leader.story.events if it.kind == "OpenReplicaFailed")
    assert failed.detail == "b0, incarnation i0: Unreachable: no route"
    assert (failed.times, failed.at, failed.last_at) == (30, began, began + 29 * OPEN_RETRY_DELAY)
    harness.fail(opened[0], NotHosted("never"))
    assert [it.times for it in harness.leader.story.events if it.kind == "OpenReplicaFailed"] == [30, 1]


@pytest.mark.parametrize("length", [10, 10_000])
def test_it_is_bounded_in_events_and_in_bytes(length: int) -> None:
    story = TopicStory()
    for number in range(3 * MAX_EVENTS):
        story.add(number, ReplicaOpened(f"t-0-16-{number}", "ä" * length), None)
    assert len(story.events) == MAX_EVENTS or story.size_bytes > 0.9 * MAX_BYTES
    assert len(story.events) <= MAX_EVENTS and story.size_bytes <= MAX_BYTES
    assert story.size_bytes == sum(it.size_bytes for it in story.events)
    assert max(len(it.detail) for it in story.events) <= MAX_DETAIL_LENGTH
    assert story.events[-1].at == 3 * MAX_EVENTS - 1, "the last ones stay"
    in_memory = sum(sys.getsizeof(it) + sum(map(sys.getsizeof, (it.at, it.segment, it.detail))) for it in story.events)
    assert in_memory <= MAX_BYTES


def test_an_event_of_a_large_layout_names_few_segments() -> None:
    harness = ReconcilerHarness(partitions=1024, min_segments=512, max_segments=1024)
    harness.answer(harness.step())
    (put,) = harness.step()
    assert isinstance(put, PutLayout) and len(put.layout.segments) == 512
    assert harness.leader.story.events[-1].detail.endswith("; 506 more")
