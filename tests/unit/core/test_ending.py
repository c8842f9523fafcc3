"""A deleted topic's segments are all sealed, none is followed by another."""

from __future__ import annotations

import pytest

from smq_core.ending import Ending
from smq_core.keyspace import KeyRange
from smq_core.layout import SealPlan, Successor, create, plan
from smq_core.model import Durability, Layout, Reason, Replica, SealOutcome
from smq_core.sealing import ASK_DEADLINE, RETRY_AFTER, AskReplica, Liveness, SealFromFiler

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


def test_every_segment_is_asked_for_at_once():
    ending = Ending(layout())
    assert ending.step(0, are()) == [AskReplica(FIRST, A), AskReplica(SECOND, B)]
    assert ending.step(1, are()) == []


def test_it_has_ended_when_every_segment_is_sealed_and_not_before():
    ending = Ending(layout())
    ending.step(0, are())
    ending.sealed(SealOutcome(FIRST, 5))
    assert ending.unsealed == [SECOND]
    ending.sealed(SealOutcome(SECOND, 0))
    assert not ending.unsealed


def test_the_other_replicas_are_asked_once_to_let_go():
    ending = Ending(layout())
    ending.step(0, are())
    ending.sealed(SealOutcome(FIRST, 5))
    assert ending.step(1, are()) == [AskReplica(FIRST, A), AskReplica(FIRST, B)]
    assert ending.step(2, are()) == []


def test_segments_that_wait_to_open_are_sealed_too():
    old = layout()
    split = SealPlan((FIRST,), Reason.SPLIT, (Successor(KeyRange(0, 8), (A, B), Durability.REPLICATED),))
    ending = Ending(plan(old, [split], now=1, writer="x"))
    assert {step.segment for step in ending.step(0, are())} == {FIRST, SECOND, "t-0-8-2"}


@pytest.mark.parametrize("durability", Durability)
def test_what_nobody_holds_any_more_is_sealed_from_the_filer(durability):
    ending = Ending(layout(durability))
    steps = ending.step(0, are(GONE))
    assert steps == [SealFromFiler(FIRST, None), SealFromFiler(SECOND, None)]
    ending.filer_failed(FIRST, 10)
    assert ending.step(11, are(GONE)) == []
    assert ending.step(10 + RETRY_AFTER, are(GONE)) == [SealFromFiler(FIRST, None)]


def test_silent_replicas_block_it_until_one_is_back():
    ending = Ending(layout())
    ending.step(0, are(SUSPECT))
    ending.step(1, are(SUSPECT))
    ending.step(2, are(SUSPECT))
    assert ending.blocked.keys() == {FIRST, SECOND}
    assert AskReplica(FIRST, B) in ending.step(2 + ASK_DEADLINE, are(SUSPECT, b=ALIVE))
    assert FIRST not in ending.blocked


def test_a_refused_call_is_repeated_and_one_that_holds_nothing_gives_way():
    ending = Ending(layout())
    ending.step(0, are())
    ending.refused(FIRST, A.incarnation, 0, not_held=True)
    ending.refused(SECOND, B.incarnation, 0, not_held=False)
    assert ending.step(1, are()) == [AskReplica(FIRST, B), AskReplica(SECOND, C)]
