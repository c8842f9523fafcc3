"""The leader's side of a seal when replicas have ended and newer processes have their journals."""

from __future__ import annotations

from smq_core.model.entities import Durability, Liveness, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.sealing.seal_coordinator import (
    REQUEST_REPEAT_AFTER,
    RETRY_AFTER,
    RequestSeal,
    SealBlocked,
    SealCoordinator,
    SealFromFiler,
)

A, B = Replica("a", "i-a", "a:1"), Replica("b", "i-b", "b:1")
ALIVE, SUSPECT, ENDED, RECOVERED, GONE = Liveness


def sealing() -> SealCoordinator:
    return SealCoordinator(Segment("s", 0, KeyRange(0, 8), Phase.SEALING, Durability.REPLICATED, (A, B)))


def step(it: SealCoordinator, now: int, a: Liveness, b: Liveness):
    return it.next_step(now, lambda incarnation: a if incarnation == "i-a" else b)


def test_a_replica_that_runs_is_preferred_to_a_journal():
    assert step(sealing(), 0, RECOVERED, ALIVE) == RequestSeal("s", B)


def test_one_journal_is_enough():
    assert step(sealing(), 0, SUSPECT, RECOVERED) == RequestSeal("s", B)
    assert step(sealing(), 0, GONE, RECOVERED) == RequestSeal("s", B)


def test_a_process_that_ended_is_waited_for_while_its_journal_may_come_back():
    it = sealing()
    for now in range(4):
        found = step(it, now, SUSPECT, GONE)
    assert isinstance(found, SealBlocked)
    assert step(it, 5, RECOVERED, GONE) == RequestSeal("s", A), "the earlier request went to the process that ended"


def test_a_process_that_ended_gets_no_requests():
    it = sealing()
    assert step(it, 0, ENDED, ENDED) == SealBlocked("s", ("i-a", "i-b"))
    assert step(it, 1, ENDED, GONE) == SealBlocked("s", ("i-a",))
    assert step(it, 2, ENDED, SUSPECT) == RequestSeal("s", B)
    assert isinstance(step(it, 3, ENDED, SUSPECT), SealBlocked), "a may have more"
    assert step(it, 4, RECOVERED, SUSPECT) == RequestSeal("s", A)


def test_a_loss_that_is_accepted_does_not_wait_for_a_process_to_start_again():
    it = sealing()
    it.accept_loss()
    assert isinstance(step(it, 0, ENDED, SUSPECT), SealFromFiler)


def test_the_filer_decides_only_when_every_journal_is_gone():
    assert isinstance(step(sealing(), 0, GONE, GONE), SealFromFiler)


def test_an_incomplete_journal_waits_for_replicas_that_may_have_more():
    it = sealing()
    assert step(it, 0, RECOVERED, SUSPECT) == RequestSeal("s", A)
    it.journal_incomplete("i-a", end=3)
    assert step(it, 1, RECOVERED, SUSPECT) == RequestSeal("s", B)
    assert isinstance(step(it, 2, RECOVERED, SUSPECT), SealBlocked)
    assert step(it, 3, RECOVERED, RECOVERED) == RequestSeal("s", B)


def test_the_longest_incomplete_journal_seals_when_nobody_has_more():
    it = sealing()
    it.journal_incomplete("i-a", end=3, watermark=9)
    it.journal_incomplete("i-b", end=5, watermark=7)
    expected = RequestSeal("s", B, known_watermark=9, accept_incomplete=True)
    assert step(it, 0, RECOVERED, RECOVERED) == expected
    assert step(it, 1, RECOVERED, RECOVERED) is None, "once at a time"
    it.refused("i-b", 2)
    assert step(it, 3, RECOVERED, RECOVERED) is None
    assert step(it, 2 + RETRY_AFTER, RECOVERED, RECOVERED) == expected
    assert step(it, 2 + RETRY_AFTER + REQUEST_REPEAT_AFTER, RECOVERED, RECOVERED) == expected


def test_an_incomplete_journal_that_is_gone_leaves_the_next_one():
    it = sealing()
    it.journal_incomplete("i-a", end=3, watermark=9)
    it.journal_incomplete("i-b", end=5)
    assert step(it, 0, RECOVERED, GONE) == RequestSeal("s", A, known_watermark=9, accept_incomplete=True)
    it.not_hosted("i-a")
    assert step(it, 1, RECOVERED, GONE) == SealFromFiler("s", 9)


def test_an_accepted_loss_uses_an_incomplete_journal_and_not_only_the_filer():
    it = sealing()
    it.journal_incomplete("i-a", end=3)
    assert isinstance(step(it, 0, RECOVERED, SUSPECT), RequestSeal), "b may be back"
    it.accept_loss()
    assert step(it, 1, RECOVERED, SUSPECT) == RequestSeal("s", A, accept_incomplete=True)


def test_the_known_watermark_shows_that_a_journal_is_too_old():
    it = sealing()
    it.known_watermark = 12
    assert step(it, 0, RECOVERED, SUSPECT) == RequestSeal("s", A, known_watermark=12)


def test_after_the_seal_journals_are_released_too():
    it = sealing()
    assert [r.replica for r in it.release_requests(lambda _: RECOVERED)] == [A, B]
