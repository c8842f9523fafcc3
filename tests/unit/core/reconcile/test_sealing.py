"""Which replicas the leader requests to seal, in which order, and when the filer alone may decide."""

from __future__ import annotations

import pytest

from smq_core.errors import NotHosted, StoreUnavailable, Unreachable
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability, Liveness, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.sealing.seal_coordinator import (
    REQUEST_REPEAT_AFTER,
    REQUEST_TIMEOUT,
    RETRY_AFTER,
    RequestSeal,
    SealBlocked,
    SealCoordinator,
    SealFromFiler,
)

A, B, C = (Replica(n, f"i-{n}", f"{n}:1") for n in "abc")
ALIVE, SUSPECT, GONE, RECOVERED = Liveness.ALIVE, Liveness.SUSPECT, Liveness.GONE, Liveness.RECOVERED


def sealing(*replicas: Replica, durability: Durability = Durability.REPLICATED) -> SealCoordinator:
    segment = Segment(
        name="s",
        number=0,
        range=KeyRange(0, 8),
        phase=Phase.SEALING,
        durability=durability,
        replicas=replicas or (A, B),
    )
    return SealCoordinator(segment)


def are(**states: Liveness):
    """Liveness by broker name."""
    return lambda incarnation: states[incarnation.removeprefix("i-")]


REQUESTS_A, REQUESTS_B = RequestSeal("s", A), RequestSeal("s", B)


def test_the_primary_comes_first_and_is_waited_for():
    it = sealing()
    assert it.next_step(0, are(a=ALIVE, b=ALIVE)) == REQUESTS_A
    assert it.next_step(REQUEST_TIMEOUT - 1, are(a=ALIVE, b=ALIVE)) is None


def test_one_that_does_not_answer_in_time_gives_way():
    it = sealing()
    it.next_step(0, are(a=ALIVE, b=ALIVE))
    assert it.next_step(REQUEST_TIMEOUT, are(a=ALIVE, b=ALIVE)) == REQUESTS_B


def test_an_unresponsive_replica_is_passed_over_at_once():
    it = sealing()
    it.next_step(0, are(a=ALIVE, b=ALIVE))
    assert it.next_step(1, are(a=SUSPECT, b=ALIVE)) == REQUESTS_B


def test_live_replicas_come_before_unresponsive_ones():
    assert sealing().next_step(0, are(a=SUSPECT, b=ALIVE)) == REQUESTS_B
    assert sealing().next_step(0, are(a=GONE, b=SUSPECT)) == REQUESTS_B


def test_a_refused_call_is_repeated_after_a_pause():
    it = sealing(A, B)
    states = are(a=ALIVE, b=GONE)
    it.next_step(0, states)
    it.failed(REQUESTS_A, Unreachable(""), 10)
    assert it.next_step(11, states) is None
    assert it.next_step(10 + RETRY_AFTER, states) == REQUESTS_A


def test_a_call_to_an_unresponsive_replica_is_repeated_when_it_is_back():
    it = sealing(A, B)
    assert it.next_step(0, are(a=SUSPECT, b=GONE)) == REQUESTS_A
    assert isinstance(it.next_step(REQUEST_TIMEOUT, are(a=SUSPECT, b=GONE)), SealBlocked)
    assert it.next_step(REQUEST_TIMEOUT, are(a=ALIVE, b=GONE)) == REQUESTS_A


def test_a_living_replica_without_an_answer_gets_a_late_second_request():
    it = sealing(A, B)
    states = are(a=ALIVE, b=GONE)
    it.next_step(0, states)
    assert it.next_step(REQUEST_REPEAT_AFTER - 1, states) is None
    assert it.next_step(REQUEST_REPEAT_AFTER, states) == REQUESTS_A


def test_when_all_are_gone_the_filer_decides():
    it = sealing()
    it.known_watermark = 7
    assert it.next_step(0, are(a=GONE, b=GONE)) == SealFromFiler("s", 7, at_least=True)
    assert it.next_step(1, are(a=GONE, b=GONE)) is None, "once at a time"
    it.failed(SealFromFiler("s", 7), StoreUnavailable(""), 2)
    assert it.next_step(3, are(a=GONE, b=GONE)) is None
    assert it.next_step(2 + RETRY_AFTER, are(a=GONE, b=GONE)) == SealFromFiler("s", 7, at_least=True)


@pytest.mark.parametrize("state", [ALIVE, RECOVERED])
def test_an_answer_that_is_not_certain_proves_nothing(state):
    it = sealing()
    it.next_step(0, are(a=GONE, b=state))
    it.failed(REQUESTS_B, NotHosted("it is not here"), 0)
    assert it.next_step(1, are(a=GONE, b=state)) == SealFromFiler("s", None, at_least=True)


def test_a_running_replica_that_never_held_it_proves_that_nothing_was_acked():
    it = sealing()
    it.next_step(0, are(a=GONE, b=ALIVE))
    it.failed(REQUESTS_B, NotHosted("", certain=True), 0)
    assert it.next_step(1, are(a=GONE, b=ALIVE)) == SealFromFiler("s", None)


def test_an_answer_that_another_process_gave_meanwhile_is_not_that_of_the_replica():
    it = sealing()
    it.next_step(0, are(a=GONE, b=ALIVE))
    it.failed(REQUESTS_B, NotHosted("", certain=False), 0)
    assert it.next_step(1, are(a=GONE, b=RECOVERED)) == SealFromFiler("s", None, at_least=True)


@pytest.mark.parametrize("states", [{"a": GONE, "b": SUSPECT}, {"a": SUSPECT, "b": SUSPECT}])
def test_unreachable_is_not_gone(states):
    it = sealing()
    requested = []
    for now in range(0, 60_000_000, 500_000):
        step = it.next_step(now, are(**states))
        assert not isinstance(step, SealFromFiler)
        if isinstance(step, RequestSeal):
            requested.append(step.replica)
    assert isinstance(step, SealBlocked)
    assert set(step.waiting_for) == {f"i-{n}" for n, state in states.items() if state is SUSPECT}
    assert len(requested) == len(set(requested)), "each silent one is asked once"


def test_a_loss_can_be_accepted_manually():
    it = sealing()
    it.next_step(0, are(a=SUSPECT, b=SUSPECT))
    it.accept_loss()
    assert it.next_step(1, are(a=SUSPECT, b=SUSPECT)) == SealFromFiler("s", None, at_least=True)


def test_a_stored_segment_needs_no_proof():
    it = sealing(A, durability=Durability.STORED)
    assert it.next_step(0, are(a=SUSPECT)) == REQUESTS_A, "it may hold more than the filer"
    assert it.next_step(1, are(a=SUSPECT)) == SealFromFiler("s", None)


def test_a_stored_segment_whose_broker_is_gone_is_sealed_at_once():
    assert sealing(A, durability=Durability.STORED).next_step(0, are(a=GONE)) == SealFromFiler("s", None)


def test_no_request_is_sent_when_the_outcome_is_known():
    it = sealing()
    it.next_step(0, are(a=ALIVE, b=ALIVE))
    it.sealed(SealOutcome(segment="s", end=5))
    assert it.next_step(REQUEST_REPEAT_AFTER, are(a=ALIVE, b=ALIVE)) is None


def test_three_replicas_give_way_one_after_the_other():
    it = sealing(A, B, C)
    states = are(a=ALIVE, b=ALIVE, c=ALIVE)
    steps = [it.next_step(n * REQUEST_TIMEOUT, states) for n in range(3)]
    assert steps == [REQUESTS_A, REQUESTS_B, RequestSeal("s", C)]
