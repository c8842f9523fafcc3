"""A deleted topic's segments are all sealed, none is followed by another."""

from __future__ import annotations

import pytest

from smq_core.errors import NotHosted, StoreUnavailable, Unreachable
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability, Layout, Liveness, Reason, Replica
from smq_core.model.keyspace import KeyRange
from smq_core.model.layout_transitions import SealPlan, Successor, create, plan
from smq_core.sealing.seal_coordinator import REQUEST_TIMEOUT, RETRY_AFTER, RequestSeal, SealFromFiler
from smq_core.sealing.topic_deletion import TopicDeletion

A, B, C = (Replica(n, f"i-{n}", f"{n}:1") for n in "abc")
ALIVE, SUSPECT, GONE = Liveness.ALIVE, Liveness.SUSPECT, Liveness.GONE
FIRST, SECOND = "t-0-8-0", "t-8-16-1"


def layout(durability: Durability = Durability.REPLICATED) -> Layout:
    replicas = ((A, B), (B, C)) if durability is Durability.REPLICATED else ((A,), (B,))
    parts = [Successor(KeyRange(at, at + 8), holders, durability) for at, holders in zip((0, 8), replicas, strict=True)]
    return create("default/t", "uid", 16, parts, now=0, writer="w")


def are(default: Liveness = ALIVE, **states: Liveness):
    """Liveness by broker name."""
    return lambda incarnation: states.get(incarnation.removeprefix("i-"), default)


def test_every_segment_is_sealed_at_once():
    deletion = TopicDeletion(layout())
    assert deletion.step(0, are()) == [RequestSeal(FIRST, A), RequestSeal(SECOND, B)]
    assert deletion.step(1, are()) == []


def test_it_has_ended_when_every_segment_is_sealed_and_not_before():
    deletion = TopicDeletion(layout())
    deletion.step(0, are())
    deletion.sealed(SealOutcome(segment=FIRST, end=5))
    assert deletion.unsealed == [SECOND]
    deletion.sealed(SealOutcome(segment=SECOND, end=0))
    assert not deletion.unsealed


def test_the_other_replicas_get_one_request_to_release_the_segment():
    deletion = TopicDeletion(layout())
    deletion.step(0, are())
    deletion.sealed(SealOutcome(segment=FIRST, end=5))
    assert deletion.step(1, are()) == [RequestSeal(FIRST, A), RequestSeal(FIRST, B)]
    assert deletion.step(2, are()) == []


def test_segments_that_wait_to_open_are_sealed_too():
    old = layout()
    split = SealPlan((FIRST,), Reason.SPLIT, (Successor(KeyRange(0, 8), (A, B), Durability.REPLICATED),))
    deletion = TopicDeletion(plan(old, [split], now=1, writer="x"))
    assert {step.segment for step in deletion.step(0, are())} == {FIRST, SECOND, "t-0-8-2"}


@pytest.mark.parametrize("durability", Durability)
def test_a_segment_that_no_replica_holds_is_sealed_from_the_filer(durability):
    deletion = TopicDeletion(layout(durability))
    steps = deletion.step(0, are(GONE))
    may_have_lost = durability is Durability.REPLICATED
    assert steps == [SealFromFiler(name, None, at_least=may_have_lost) for name in (FIRST, SECOND)]
    deletion.failed(steps[0], StoreUnavailable(""), 10)
    assert deletion.step(11, are(GONE)) == []
    assert deletion.step(10 + RETRY_AFTER, are(GONE)) == [SealFromFiler(FIRST, None, at_least=may_have_lost)]


def test_unresponsive_replicas_block_the_deletion_until_one_is_back():
    deletion = TopicDeletion(layout())
    deletion.step(0, are(SUSPECT))
    deletion.step(1, are(SUSPECT))
    deletion.step(2, are(SUSPECT))
    assert deletion.blocked.keys() == {FIRST, SECOND}
    assert RequestSeal(FIRST, B) in deletion.step(2 + REQUEST_TIMEOUT, are(SUSPECT, b=ALIVE))
    assert FIRST not in deletion.blocked


def test_a_refused_call_is_repeated_and_one_that_holds_nothing_gives_way():
    deletion = TopicDeletion(layout())
    deletion.step(0, are())
    deletion.failed(RequestSeal(FIRST, A), NotHosted("", certain=True), 0)
    deletion.failed(RequestSeal(SECOND, B), Unreachable(""), 0)
    assert deletion.step(1, are()) == [RequestSeal(FIRST, B), RequestSeal(SECOND, C)]
