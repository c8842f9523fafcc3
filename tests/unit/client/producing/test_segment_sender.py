"""What a sender does when its session cannot be opened or ends. The timers are real, the sessions are not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from smq.producing.batching.partitioning import SubBatch
from smq.producing.delivery_state import DeliveryState
from smq.producing.lanes.segment_sender import SegmentSender
from smq.producing.runtime.timers import Timers
from smq_core.errors import InvalidRequest, NotHosted, NotOpenYet, ProducerFenced, SmqError, Unreachable
from smq_core.model.entities import Durability, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.producing.send_queue import SendQueue, SendQueueState
from support.in_memory.brokers import batch_of
from support.waiting import eventually

SEGMENT = Segment(
    name="t-0-8-0",
    number=0,
    range=KeyRange(0, 8),
    phase=Phase.OPEN,
    durability=Durability.REPLICATED,
    replicas=(Replica("b", "i", "a:1"),),
)


class RefusedSession:
    """A session that its primary refuses."""

    segment = SEGMENT

    def __init__(self, sender: SegmentSender, rejection: SmqError) -> None:
        self._sender = sender
        self._rejection = rejection

    def refuse(self) -> None:
        self._sender.ended(self, self._rejection)

    def notify(self) -> None: ...

    def abort(self) -> None: ...


class RefusingPrimary:
    """The producer of one sender, whose sessions are all refused."""

    def __init__(self, rejection: SmqError, *, has_messages: bool = True) -> None:
        self.lock = threading.Lock()
        self.stopping = False
        self.rejection = rejection
        self.sessions = 0
        self.failure: SmqError | None = None
        self.unreachable: list[str] = []
        self.queue = SendQueue(SEGMENT)
        if has_messages:
            self.queue.queue.append(
                SubBatch(
                    batch=batch_of(1, 0), delivery_state=DeliveryState(1, self.lock), rows=None, cost=1, created_at=0.0
                )
            )
        self.timers = Timers()
        with self.lock:
            self.sender = SegmentSender(self, self.queue, open_ahead=not has_messages)

    def open_session(self, sender: SegmentSender) -> RefusedSession:
        self.sessions += 1
        session = RefusedSession(sender, self.rejection)
        self.timers.call_later(0.0, session.refuse)
        return session

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.timers.call_later(seconds, call)

    def may_send(self, _: SendQueue) -> bool:
        return True

    def fail(self, error: SmqError) -> None:
        with self.lock:
            self.failure = error
            self.queue.state = SendQueueState.DONE

    def report_unreachable(self, replica: Replica, failure: SmqError | None) -> None:
        self.unreachable.append(replica.incarnation)

    def stop(self) -> None:
        with self.lock:
            self.stopping = True
            self.sender.notify()
        self.timers.close()


@pytest.fixture
def primary(request: pytest.FixtureRequest) -> Iterator[RefusingPrimary]:
    made = RefusingPrimary(request.param)
    yield made
    made.stop()


@pytest.mark.parametrize("primary", [ProducerFenced("fenced"), InvalidRequest("no")], indirect=True, ids=str)
def test_a_rejection_for_good_ends_the_producer(primary: RefusingPrimary) -> None:
    eventually(lambda: primary.failure is primary.rejection)
    assert primary.sessions == 1 and not primary.unreachable


@pytest.mark.parametrize("primary", [NotOpenYet("soon"), NotHosted("gone")], indirect=True, ids=str)
def test_a_broker_that_answers_is_not_reported_as_unreachable(primary: RefusingPrimary) -> None:
    eventually(lambda: primary.sessions >= 3, "it tries again")
    assert primary.failure is None and not primary.unreachable


@pytest.mark.parametrize("primary", [Unreachable("no answer")], indirect=True, ids=str)
def test_a_broker_that_does_not_answer_is_reported_and_tried_again(primary: RefusingPrimary) -> None:
    eventually(lambda: primary.sessions >= 3)
    assert set(primary.unreachable) == {"i"} and primary.failure is None


def test_a_session_that_is_opened_ahead_waits_until_the_broker_hosts_the_segment() -> None:
    primary = RefusingPrimary(NotHosted("not yet"), has_messages=False)
    try:
        eventually(lambda: primary.sessions >= 3, "it tries again although there is nothing to send")
        with primary.lock:
            primary.sender.opened()
        eventually(lambda: primary.sender._unended is None and not primary.sender._retry_planned)
        assert not primary.unreachable
    finally:
        primary.stop()
