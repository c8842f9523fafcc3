"""The leader's side of a seal when replicas have ended and newer processes have their journals."""

from __future__ import annotations

from smq_core.errors import JournalIncomplete, NotHosted, Unreachable
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
REQUESTS_A, REQUESTS_B = RequestSeal("s", A), RequestSeal("s", B)
ALIVE, SUSPECT, ENDED, RECOVERED, GONE = Liveness


def sealing() -> SealCoordinator:
    return SealCoordinator(
        Segment(
            name="s",
            number=0,
            range=KeyRange(0, 8),
            phase=Phase.SEALING,
            durability=Durability.REPLICATED,
            replicas=(A, B),
        )
    )


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
    it.failed(REQUESTS_A, JournalIncomplete("", end=3), 0)
    assert step(it, 1, RECOVERED, SUSPECT) == RequestSeal("s", B)
    assert isinstance(step(it, 2, RECOVERED, SUSPECT), SealBlocked)
    assert step(it, 3, RECOVERED, RECOVERED) == RequestSeal("s", B)


def test_the_longest_incomplete_journal_seals_when_nobody_has_more():
    it = sealing()
    it.failed(REQUESTS_A, JournalIncomplete("", end=3, watermark=9), 0)
    it.failed(REQUESTS_B, JournalIncomplete("", end=5, watermark=7), 0)
    expected = RequestSeal("s", B, known_watermark=9, accept_incomplete=True)
    began = RETRY_AFTER
    assert step(it, began, RECOVERED, RECOVERED) == expected
    assert step(it, began + 1, RECOVERED, RECOVERED) is None, "once at a time"
    it.failed(expected, Unreachable(""), began + 2)
    assert step(it, began + 3, RECOVERED, RECOVERED) is None
    again = began + 2 + RETRY_AFTER
    assert step(it, again, RECOVERED, RECOVERED) == expected
    assert step(it, again + REQUEST_REPEAT_AFTER, RECOVERED, RECOVERED) == expected


def test_one_that_has_too_little_even_for_a_loss_gets_the_next_request_after_a_pause():
    it = sealing()
    it.failed(REQUESTS_A, JournalIncomplete("", end=3), 0)
    assert isinstance(step(it, RETRY_AFTER, RECOVERED, GONE), RequestSeal)
    it.failed(REQUESTS_A, JournalIncomplete("", end=3), RETRY_AFTER + 1)
    assert step(it, RETRY_AFTER + 2, RECOVERED, GONE) is None
    assert isinstance(step(it, 2 * RETRY_AFTER + 1, RECOVERED, GONE), RequestSeal)


def test_an_incomplete_journal_that_is_gone_leaves_the_next_one():
    it = sealing()
    it.failed(REQUESTS_A, JournalIncomplete("", end=3, watermark=9), 0)
    it.failed(REQUESTS_B, JournalIncomplete("", end=5), 0)
    assert step(it, RETRY_AFTER, RECOVERED, GONE) == RequestSeal("s", A, known_watermark=9, accept_incomplete=True)
    it.failed(REQUESTS_A, NotHosted("", certain=False), 0)
    assert step(it, RETRY_AFTER + 1, RECOVERED, GONE) == SealFromFiler("s", 9, at_least=True)


def test_an_accepted_loss_uses_an_incomplete_journal_and_not_only_the_filer():
    it = sealing()
    it.failed(REQUESTS_A, JournalIncomplete("", end=3), 0)
    assert isinstance(step(it, 0, RECOVERED, SUSPECT), RequestSeal), "b may be back"
    it.accept_loss()
    assert step(it, RETRY_AFTER, RECOVERED, SUSPECT) == RequestSeal("s", A, accept_incomplete=True)


def test_the_known_watermark_shows_that_a_journal_is_too_old():
    it = sealing()
    it.known_watermark = 12
    assert step(it, 0, RECOVERED, SUSPECT) == RequestSeal("s", A, known_watermark=12)


def test_after_the_seal_journals_are_released_too():
    it = sealing()
    assert [r.replica for r in it.release_requests(lambda _: RECOVERED)] == [A, B]


# ---- a segment that was planned, and not opened everywhere


def test_one_whole_journal_without_the_segment_proves_that_nothing_was_acked():
    it = sealing()
    assert step(it, 0, RECOVERED, GONE) == RequestSeal("s", A)
    it.failed(REQUESTS_A, NotHosted("", certain=True), 0)
    assert step(it, 1, RECOVERED, GONE) == SealFromFiler("s", None)


def test_a_journal_that_may_lack_segments_proves_nothing():
    it = sealing()
    assert step(it, 0, RECOVERED, GONE) == RequestSeal("s", A)
    it.failed(REQUESTS_A, NotHosted("", certain=False), 0)
    assert step(it, 1, RECOVERED, GONE) == SealFromFiler("s", None, at_least=True)


def test_the_journal_of_the_other_replica_is_still_waited_for():
    it = sealing()
    it.failed(REQUESTS_A, NotHosted("", certain=True), 0)
    assert step(it, 0, RECOVERED, ENDED) == SealBlocked("s", ("i-b",))
    assert step(it, 1, RECOVERED, RECOVERED) == RequestSeal("s", B)


def test_an_incomplete_journal_lacks_nothing_if_nothing_was_acked():
    it = sealing()
    it.failed(REQUESTS_B, JournalIncomplete("", end=3), 0)
    it.failed(REQUESTS_A, NotHosted("", certain=True), 0)
    assert step(it, RETRY_AFTER, RECOVERED, RECOVERED) == SealFromFiler("s", None)


def test_a_watermark_shows_that_a_journal_without_the_segment_is_too_old():
    it = sealing()
    it.failed(REQUESTS_A, NotHosted("", certain=True), 0)
    it.failed(REQUESTS_B, JournalIncomplete("", end=3, watermark=2), 0)
    assert isinstance(step(it, RETRY_AFTER, RECOVERED, RECOVERED), RequestSeal)
    assert step(it, RETRY_AFTER, RECOVERED, GONE) == SealFromFiler("s", 2, at_least=True)
