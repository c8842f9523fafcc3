"""What a producer does with events: sessions, batches that move to successors, outcomes, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from smq_core.errors import (
    DeliveryTimeout,
    GrantMissing,
    InvalidRequest,
    NotHosted,
    NotOpenYet,
    Overloaded,
    PermissionDenied,
    ProducerFenced,
    QuotaExceeded,
    ReferenceRejected,
    SchemaMismatch,
    SequenceGap,
    SmqError,
    Unauthenticated,
    UnknownTopic,
    Unreachable,
)
from smq_core.model.chunk_info import ProducerState, SealOutcome
from smq_core.model.entities import Durability, Layout, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.producing import producer_machine
from smq_core.producing.producer_events import (
    Acked,
    Event,
    LayoutChanged,
    Rejected,
    Sealed,
    SessionEnded,
    SessionFailed,
    SessionOpened,
    Stopped,
    Submitted,
    Tick,
    UploadEnded,
)
from smq_core.producing.producer_instructions import (
    EndProducer,
    ExpireSubBatch,
    FailSubBatch,
    FetchOutcomes,
    ForgetSubBatch,
    Instruction,
    NotifySession,
    OpenSession,
    RecordMove,
    ReportUnreachable,
    WakeAt,
)
from smq_core.producing.producer_machine import MissingOutcome, ProducerIdentity, ProducerMachine
from smq_core.producing.routes import Route
from smq_core.producing.segment_sender import (
    MAX_BACKOFF_SECONDS,
    QUOTA_TIMEOUT_SECONDS,
    SMALL_AFTER_SECONDS,
    NoBatch,
)
from smq_core.producing.send_queue import DeliveredSubBatch

PARTITIONS = 8
TIMEOUT = 100.0


@dataclass(frozen=True)
class Rows:
    """A sub-batch with one row for each of its partitions. ``needs`` is the oldest version that has its columns."""

    partitions: tuple[int, ...]
    created_at: float = 0.0
    is_large: bool = False
    large_value: object | None = None
    needs: int = 0

    def fits(self, segment: Segment) -> bool:
        return self.needs <= segment.schema_version


class PlainRows:
    """Schemas up to ``newest`` are known; ``errors`` are of rows that a segment does not take."""

    def __init__(self) -> None:
        self.newest = 10
        self.errors: dict[Rows, SmqError] = {}

    def split(self, sub_batch: Any, route: Route) -> Sequence[tuple[Segment, Any]]:
        parts = []
        for span in route.spans:
            kept = tuple(p for p in sub_batch.partitions if span.start <= p < span.stop)
            if kept:
                parts.append((span.segment, replace(sub_batch, partitions=kept)))
        return parts

    def reshape(self, sub_batch: Any, segment: Segment) -> Any:
        if sub_batch in self.errors:
            raise self.errors[sub_batch]
        return sub_batch

    def has_schemas(self, segments: Sequence[Segment]) -> bool:
        return all(segment.schema_version <= self.newest for segment in segments)


def rows(*partitions: int, **more: Any) -> Rows:
    return Rows(partitions, **more)


def segment(number: int, start: int = 0, stop: int = PARTITIONS, *predecessors: str, **more: Any) -> Segment:
    return Segment(
        name=f"t-{start}-{stop}-{number}",
        number=number,
        range=KeyRange(start, stop),
        phase=Phase.OPEN,
        durability=Durability.REPLICATED,
        replicas=(Replica(f"b{number}", f"i{number}", f"b{number}:1"),),
        predecessors=predecessors,
        **more,
    )


FIRST = segment(0)
LOW, HIGH = segment(1, 0, 4, FIRST.name), segment(2, 4, 8, FIRST.name)
NEXT = segment(3, 0, 8, FIRST.name)


def layout(version: int, *segments: Segment) -> Layout:
    return Layout(
        topic="default/t", uid="u", partitions=PARTITIONS, version=version, next_number=9, segments=tuple(segments)
    )


class Producer:
    """A machine over one segment, with what it instructed since the last look. ``now`` is in seconds."""

    def __init__(self, *segments: Segment) -> None:
        self.rows = PlainRows()
        self.machine = ProducerMachine(
            ProducerIdentity("p", 1, "me"), layout(1, *(segments or (FIRST,))), self.rows, TIMEOUT
        )
        self.now = 0.0

    def handle(self, event: Event) -> list[Instruction]:
        return self.machine.handle(event, self.now)

    def submit(self, sub_batch: Rows) -> list[Instruction]:
        return self.handle(Submitted(self.rows.split(sub_batch, self.machine.route)))

    def open(self, session: int = 1, **more: Any) -> list[Instruction]:
        given = {"last_sequence": None, "end": 0, "forgotten_upto": 0} | more
        return self.handle(SessionOpened(session=session, **given))

    def next(self, session: int = 1) -> Any:
        found = self.machine.next_batch(session, self.now)
        return found if isinstance(found, NoBatch) else (found.sequence, found.sub_batch)

    def delay_after_failure(self, session: int) -> float:
        """How long after the failure of a session another one is opened."""
        failed_at = self.now
        instructions = self.handle(SessionEnded(session, Unreachable("no"), is_planned=False))
        while not only(OpenSession, instructions):
            self.now = round(self.now + 0.001, 6)
            instructions = self.handle(Tick())
        return round(self.now - failed_at, 6)

    def tick(self, at: float) -> list[Instruction]:
        self.now = at
        return self.handle(Tick())


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.fixture
def sending(producer: Producer) -> Producer:
    """Two batches are in flight in session 1."""
    for partition in (0, 5):
        producer.submit(rows(partition))
    producer.open()
    assert producer.next() == (0, rows(0)) and producer.next() == (1, rows(5))
    return producer


def only(kind: type, instructions: Sequence[Instruction]) -> list[Any]:
    return [it for it in instructions if isinstance(it, kind)]


def sealed(successors: Sequence[Segment] = (), *, session: int | None = 1, last: int | None = None) -> Sealed:
    state = {} if last is None else {"p": ProducerState(epoch=1, last_sequence=last, recent=(10, 11), instance="me")}
    return Sealed(session, SealOutcome(segment=FIRST.name, end=20, producers=state), tuple(successors))


# ---- sessions


def test_the_first_rows_open_a_session_and_wait_until_it_is_open(producer: Producer) -> None:
    assert only(OpenSession, producer.submit(rows(0))) == [OpenSession(1, FIRST, is_bulk=False)]
    assert producer.next() is NoBatch.WAIT
    assert producer.open() == [NotifySession(1)]
    assert producer.next() == (0, rows(0)) and producer.next() is NoBatch.WAIT
    assert producer.submit(rows(1)) == [NotifySession(1)]
    assert producer.handle(Acked(1, 0, [7])) == [DeliveredSubBatch(FIRST.name, rows(0), 7), NotifySession(1)]


def test_what_is_in_flight_is_sent_again_in_the_next_session(sending: Producer) -> None:
    ended = sending.handle(SessionEnded(1, Unreachable("gone"), is_planned=False))
    assert [it.replica.incarnation for it in only(ReportUnreachable, ended)] == ["i0"]
    (wake,) = only(WakeAt, ended)
    opened = sending.tick(wake.at)
    assert only(OpenSession, opened) == [OpenSession(2, FIRST, is_bulk=False)]
    assert sending.next(1) is NoBatch.END, "the former session has nothing more"
    sending.open(2, last_sequence=0)
    assert sending.next(2) == (0, rows(0)) and sending.next(2) == (1, rows(5))


@pytest.mark.parametrize(
    "late",
    [Acked(1, 0, [99]), Rejected(1, 0, InvalidRequest("late")), SessionFailed(1, UnknownTopic("late"))],
    ids=lambda it: type(it).__name__,
)
def test_a_reply_of_a_former_session_changes_nothing(sending: Producer, late: Event) -> None:
    sending.handle(SessionEnded(1, None, is_planned=True))
    sending.open(2)
    assert sending.handle(late) == []
    assert sending.handle(SessionEnded(1, None, is_planned=False)) == []
    assert sending.next(2) == (0, rows(0)) and sending.machine.failure is None


@pytest.mark.parametrize(
    "failure", [NotOpenYet("soon"), NotHosted("gone"), Overloaded("full"), QuotaExceeded("many")], ids=str
)
def test_a_broker_that_answers_is_not_reported_as_unreachable(sending: Producer, failure: SmqError) -> None:
    ended = sending.handle(SessionEnded(1, failure, is_planned=True))
    assert not only(ReportUnreachable, ended) and not only(OpenSession, ended)
    assert only(OpenSession, sending.tick(1.0)) == [OpenSession(2, FIRST, is_bulk=False)]


def test_a_grant_that_a_broker_lacks_is_no_fault_of_the_broker(sending: Producer) -> None:
    ended = sending.handle(SessionEnded(1, GrantMissing("no grant"), is_planned=False))
    assert not only(ReportUnreachable, ended) and not only(EndProducer, ended)
    assert only(OpenSession, sending.tick(1.0)), "it is tried again"


@pytest.mark.parametrize("by_reply", [True, False], ids=["reply", "end"])
@pytest.mark.parametrize(
    "failure",
    [ProducerFenced("fenced"), InvalidRequest("no"), PermissionDenied("not you"), Unauthenticated("who?")],
    ids=str,
)
def test_a_rejection_for_good_ends_the_producer(sending: Producer, failure: SmqError, by_reply: bool) -> None:
    if by_reply:
        sending.handle(SessionFailed(1, failure))
    ended = sending.handle(SessionEnded(1, None if by_reply else failure, is_planned=True))
    assert ended == [FailSubBatch(rows(0), failure), FailSubBatch(rows(5), failure), EndProducer(failure)]
    assert sending.submit(rows(1)) == [FailSubBatch(rows(1), failure)]
    assert not only(OpenSession, sending.tick(10.0))


@pytest.mark.parametrize("opens_between", [False, True])
def test_a_quota_that_refuses_sessions_for_long_ends_the_producer(sending: Producer, opens_between: bool) -> None:
    refused = QuotaExceeded("ada has 2 streams open, and its quota is 2")
    session, ended = 1, sending.handle(SessionEnded(1, refused, is_planned=False))
    while sending.now < QUOTA_TIMEOUT_SECONDS:
        assert not only(EndProducer, ended), "a stream may end meanwhile"
        session += 1
        assert only(OpenSession, sending.tick(sending.now + 1.0))
        if opens_between and sending.now == QUOTA_TIMEOUT_SECONDS / 2:
            sending.open(session)
        ended = sending.handle(SessionEnded(session, refused, is_planned=False))
    if opens_between:
        assert not only(EndProducer, ended)
    else:
        assert ended == [FailSubBatch(rows(0), refused), FailSubBatch(rows(5), refused), EndProducer(refused)]


def test_sessions_are_opened_later_and_later_until_one_works(producer: Producer) -> None:
    producer.submit(rows(0))
    delays = [producer.delay_after_failure(session) for session in range(1, 8)]
    assert delays[:4] == sorted(delays[:4]) and delays[0] < delays[-1] == pytest.approx(MAX_BACKOFF_SECONDS, abs=0.002)
    producer.open(8)
    producer.next(8)
    producer.submit(rows(1))
    producer.handle(Acked(8, 0, [0]))
    assert producer.delay_after_failure(8) == pytest.approx(delays[0], abs=0.002)


def test_an_unknown_topic_ends_the_producer_at_once(sending: Producer) -> None:
    gone = UnknownTopic("gone")
    assert EndProducer(gone) in sending.handle(SessionFailed(1, gone))
    assert sending.next() is NoBatch.END


def test_another_process_with_the_same_id_ends_the_producer(producer: Producer) -> None:
    producer.submit(rows(0))
    (failed, notified, ended) = producer.open(last_sequence=4)
    assert isinstance(failed, FailSubBatch) and notified == NotifySession(1)
    assert isinstance(ended, EndProducer) and isinstance(ended.error, ProducerFenced)


def test_a_log_that_lacks_what_it_acked_ends_the_producer(sending: Producer) -> None:
    sending.handle(Acked(1, 0, [0]))
    sending.handle(SessionEnded(1, None, is_planned=True))
    (ended,) = only(EndProducer, sending.open(2, last_sequence=None, end=0, forgotten_upto=0))
    assert isinstance(ended.error, SequenceGap)


def test_nobody_knows_of_batches_that_a_segment_has_forgotten(sending: Producer) -> None:
    sending.handle(SessionEnded(1, None, is_planned=True))
    assert sending.open(2, end=10, forgotten_upto=5) == [
        ForgetSubBatch(rows(0)), ForgetSubBatch(rows(5)), NotifySession(2)
    ]  # fmt: skip
    sending.submit(rows(1))
    assert sending.next(2) == (0, rows(1))


def test_a_rejected_batch_fails_alone(sending: Producer) -> None:
    error = ReferenceRejected("not there")
    assert sending.handle(Rejected(1, 0, error)) == [FailSubBatch(rows(0), error), NotifySession(1)]
    assert sending.next() == (0, rows(5)), "it moves up by one sequence"


# ---- the two lanes


def test_large_rows_take_the_bulk_lane_and_small_ones_return_later(sending: Producer) -> None:
    large = rows(1, is_large=True)
    assert sending.submit(large) == [NotifySession(1)]
    assert sending.next() is NoBatch.END
    ended = sending.handle(SessionEnded(1, None, is_planned=True))
    assert only(OpenSession, ended) == [OpenSession(2, FIRST, is_bulk=True)]
    sending.open(2, last_sequence=1)
    assert [sending.next(2) for _ in range(3)] == [(0, rows(0)), (1, rows(5)), (2, large)]
    sending.submit(rows(2))
    assert sending.next(2) == (3, rows(2)), "in the same session, because another large one may follow"
    sending.handle(Acked(2, 0, [0, 1, 2, 3]))
    sending.now = SMALL_AFTER_SECONDS
    sending.submit(rows(3))
    assert sending.next(2) is NoBatch.END
    opened = sending.handle(SessionEnded(2, None, is_planned=True))
    assert only(OpenSession, opened) == [OpenSession(3, FIRST, is_bulk=False)]


def test_a_message_waits_for_its_upload_and_holds_back_what_is_behind_it(producer: Producer) -> None:
    value = object()
    large = rows(0, is_large=True, large_value=value, needs=11)
    producer.submit(large)
    producer.submit(rows(1))
    producer.open()
    assert producer.next() is NoBatch.WAIT
    other = producer.handle(UploadEnded(object(), InvalidRequest("of another message")))
    assert other == [NotifySession(1)]
    error = InvalidRequest("no room")
    assert producer.handle(UploadEnded(value, error)) == [FailSubBatch(large, error), NotifySession(1)]
    assert producer.next() == (0, rows(1))


# ---- segments that are replaced


def test_what_the_outcome_lacks_goes_to_the_successors_in_order(sending: Producer) -> None:
    sending.submit(rows(1, 6))
    moved = sending.handle(sealed([LOW, HIGH], last=0))
    assert only(DeliveredSubBatch, moved)[0].sub_batch == rows(0)
    assert only(RecordMove, moved) == [RecordMove(FIRST, (LOW, HIGH), 2)]
    assert [it.segment for it in only(OpenSession, moved)] == [HIGH, LOW]
    sending.open(2)
    sending.open(3)
    assert [sending.next(2) for _ in range(3)] == [(0, rows(5)), (1, rows(6)), NoBatch.WAIT]
    assert sending.next(3) == (0, rows(1))
    assert sending.next(1) is NoBatch.END and sending.machine.route.segments == (LOW, HIGH)


def test_a_queue_stays_while_its_session_works_although_the_layout_has_moved_on(sending: Producer) -> None:
    ahead = sending.handle(LayoutChanged(layout(2, LOW, HIGH)))
    assert {it.segment for it in only(OpenSession, ahead)} == {LOW, HIGH}, "sessions are opened ahead"
    assert not only(RecordMove, ahead)
    sending.submit(rows(1))
    assert sending.next() == (2, rows(1))
    sending.open(2)
    assert sending.next(2) is NoBatch.WAIT, "nothing overtakes what has no outcome"
    sending.handle(Acked(1, 0, [0, 1, 2]))
    moved = sending.handle(SessionEnded(1, None, is_planned=True))
    assert only(RecordMove, moved) == [RecordMove(FIRST, (LOW, HIGH), 0)], "no outcome is needed"


@pytest.mark.parametrize(
    "last", [Acked(2, 0, [0]), Rejected(2, 0, ReferenceRejected("no", upload="u"))], ids=["acked", "rejected"]
)
def test_a_segment_of_two_predecessors_may_send_when_nothing_is_left_of_the_second(last: Event) -> None:
    """Its outcome may be long in coming: the primary of that one may just have failed."""
    low, high = segment(1, 0, 4), segment(2, 4, 8)
    merged = segment(3, 0, 8, low.name, high.name)
    producer = Producer(low, high)
    for session, partition in ((1, 0), (2, 5)):
        producer.submit(rows(partition))
        producer.open(session)
        assert producer.next(session) == (0, rows(partition))
    producer.handle(Sealed(1, SealOutcome(segment=low.name, end=9, producers={}), (merged,)))
    producer.open(3)
    assert producer.next(3) is NoBatch.WAIT, "what is in flight to the other predecessor comes first"
    assert NotifySession(3) in producer.handle(last)
    assert producer.next(3) == (0, rows(0))


def test_outcomes_are_fetched_when_the_session_is_unresponsive_or_gone(sending: Producer) -> None:
    replaced = sending.handle(LayoutChanged(layout(2, NEXT)))
    assert only(FetchOutcomes, replaced) == [FetchOutcomes()]
    assert sending.machine.missing_outcomes(sending.now) == [], "its session may bring it"
    sending.now += producer_machine.OUTCOME_POLL_DELAY_SECONDS
    missing = [MissingOutcome(FIRST, NEXT.replicas)]
    assert sending.machine.missing_outcomes(sending.now) == missing
    sending.handle(Acked(1, 0, [0]))
    assert sending.machine.missing_outcomes(sending.now) == []
    sending.handle(SessionEnded(1, None, is_planned=False))
    assert sending.machine.missing_outcomes(sending.now) == missing
    assert not only(FetchOutcomes, sending.handle(sealed([NEXT], session=None, last=1)))
    assert sending.machine.missing_outcomes(sending.now) is None
    again = sending.handle(LayoutChanged(layout(3, NEXT)))
    assert not only(FetchOutcomes, again), "nothing is replaced"


def test_outcomes_are_fetched_again_for_the_next_segment(sending: Producer) -> None:
    sending.handle(LayoutChanged(layout(2, NEXT)))
    sending.handle(sealed([NEXT], session=None, last=0))
    assert sending.machine.missing_outcomes(sending.now) is None
    last = segment(4, 0, 8, NEXT.name)
    sending.open(2)
    assert sending.next(2) == (0, rows(5))
    assert only(FetchOutcomes, sending.handle(LayoutChanged(layout(3, last)))) == [FetchOutcomes()]


@pytest.mark.parametrize("session", [1, None], ids=["its session", "another broker"])
@pytest.mark.parametrize(
    "state",
    [
        ProducerState(epoch=2, last_sequence=0, recent=(0,)),
        ProducerState(epoch=1, last_sequence=0, recent=(0,), instance="x"),
    ],
    ids=["a newer epoch", "another process"],
)
def test_an_outcome_of_another_writer_ends_the_producer(
    sending: Producer, session: int | None, state: ProducerState
) -> None:
    outcome = SealOutcome(segment=FIRST.name, end=1, producers={"p": state})
    (ended,) = only(EndProducer, sending.handle(Sealed(session, outcome, (NEXT,))))
    assert isinstance(ended.error, ProducerFenced)
    assert not only(OpenSession, sending.handle(LayoutChanged(layout(2, NEXT))))


def test_successors_of_an_unknown_schema_wait_for_the_layout(sending: Producer) -> None:
    newer = segment(3, 0, 8, FIRST.name, schema_version=11)
    sending.handle(sealed([newer], last=1))
    assert sending.machine.route.segments == (FIRST,)
    sending.rows.newest = 11
    sending.submit(rows(0))
    moved = sending.handle(LayoutChanged(layout(2, newer)))
    assert only(RecordMove, moved) and sending.machine.route.segments == (newer,)


def test_rows_that_need_newer_columns_wait_for_the_successors(producer: Producer) -> None:
    producer.submit(rows(0))
    producer.open()
    producer.next()
    newer = rows(1, needs=3)
    producer.handle(Submitted([(FIRST, newer)]))
    assert producer.next() is NoBatch.WAIT


def test_a_session_opened_ahead_is_tried_again_until_the_broker_hosts_the_segment(sending: Producer) -> None:
    sending.handle(LayoutChanged(layout(2, NEXT)))
    for session in (2, 3, 4):
        sending.handle(SessionEnded(session, NotHosted("not yet"), is_planned=True))
        assert OpenSession(session + 1, NEXT, is_bulk=False) in sending.tick(sending.now + 1.0)
    sending.open(5)
    sending.handle(SessionEnded(5, None, is_planned=True))
    assert not only(OpenSession, sending.tick(sending.now + 1.0)), "it was open, and there is nothing to send"


def test_a_session_opened_ahead_ends_when_its_segment_is_replaced_unused(sending: Producer) -> None:
    sending.handle(LayoutChanged(layout(2, LOW, HIGH)))
    last = segment(4, 0, 8, LOW.name, HIGH.name)
    ended = sending.handle(LayoutChanged(layout(3, last)))
    assert {NotifySession(2), NotifySession(3)} <= set(only(NotifySession, ended))
    assert sending.next(2) is NoBatch.END and sending.next(3) is NoBatch.END


def test_a_segment_that_is_done_is_no_target_of_an_older_view(sending: Producer) -> None:
    sending.handle(sealed([NEXT], last=1))
    sending.handle(LayoutChanged(layout(2, FIRST)))
    assert sending.machine.route.segments == (NEXT,)


# ---- what ends rows, or the producer


def test_a_value_without_a_column_halts_the_producer_before_anything_overtakes_it(sending: Producer) -> None:
    sending.submit(rows(2))
    error = SchemaMismatch("dropped", topic="t", expected="", difference=())
    sending.rows.errors[rows(3)] = error
    assert sending.submit(rows(3)) == [
        FailSubBatch(rows(2), error), EndProducer(error), FailSubBatch(rows(3), error)
    ]  # fmt: skip
    assert sending.handle(Acked(1, 0, [0, 1])) == [
        DeliveredSubBatch(FIRST.name, rows(0), 0), DeliveredSubBatch(FIRST.name, rows(5), 1)
    ]  # fmt: skip


def test_other_rows_that_a_segment_does_not_take_fail_alone(sending: Producer) -> None:
    error = ReferenceRejected("of an old schema")
    sending.rows.errors[rows(3)] = error
    assert sending.submit(rows(3)) == [FailSubBatch(rows(3), error)]
    assert sending.submit(rows(4)) == [NotifySession(1)]


def test_rows_that_wait_too_long_are_dropped_and_sent_ones_stay_until_their_outcome(sending: Producer) -> None:
    for _ in range(3):
        sending.submit(rows(2))
    sending.handle(SessionFailed(1, Overloaded("full")))
    sending.handle(SessionEnded(1, None, is_planned=False))
    assert not only(ExpireSubBatch, sending.tick(TIMEOUT - 1))
    expired = only(ExpireSubBatch, sending.tick(TIMEOUT))
    assert [(it.sub_batch, it.is_sent) for it in expired] == [
        (rows(0), True), (rows(5), True), (rows(2), False), (rows(2), False), (rows(2), False)
    ]  # fmt: skip
    assert {type(it.cause) for it in expired} == {Overloaded}
    assert not sending.machine.is_idle
    (open_again,) = {it.session for it in only(OpenSession, sending.tick(TIMEOUT + 1))} or {2}
    sending.open(open_again, last_sequence=1)
    assert [sending.next(open_again) for _ in range(2)] == [(0, rows(0)), (1, rows(5))]
    assert len(only(DeliveredSubBatch, sending.handle(Acked(open_again, 0, [0, 1])))) == 2
    assert sending.machine.is_idle


def test_the_producer_looks_for_old_rows_while_it_has_any(producer: Producer) -> None:
    (wake,) = only(WakeAt, producer.submit(rows(0)))
    assert wake.at == producer_machine.EXPIRY_INTERVAL_SECONDS
    (again,) = only(WakeAt, producer.tick(wake.at))
    assert again.at == 2 * wake.at
    producer.open()
    producer.next()
    producer.handle(Acked(1, 0, [0]))
    assert producer.tick(again.at) == []


def test_a_tick_that_comes_a_little_early_counts_and_one_of_before_does_not(producer: Producer) -> None:
    (look,) = only(WakeAt, producer.submit(rows(0)))
    (retry,) = only(WakeAt, producer.handle(SessionEnded(1, Unreachable("no"), is_planned=False)))
    assert producer.tick(retry.at - 0.0005) == [OpenSession(2, FIRST, is_bulk=False), WakeAt(look.at)]
    assert producer.tick(retry.at) == [], "this one is over"
    assert only(WakeAt, producer.tick(look.at - 0.0005))


def test_ticks_do_not_become_more(producer: Producer) -> None:
    """A backoff that ends before the next look for old rows is one more wake, and no wake makes two."""
    planned: list[float] = [it.at for it in only(WakeAt, producer.submit(rows(0)))]
    session = 1
    for _ in range(200):
        producer.now = min(planned)
        planned.remove(producer.now)
        instructions = producer.handle(Tick())
        if only(OpenSession, instructions) or producer.now == producer_machine.EXPIRY_INTERVAL_SECONDS:
            instructions += producer.handle(SessionEnded(session, Unreachable("no"), is_planned=False))
            session += 1
        planned += [it.at for it in only(WakeAt, instructions)]
        assert len(planned) <= 6


def test_a_producer_that_is_stopped_fails_everything_and_ends_its_sessions(sending: Producer) -> None:
    sending.submit(rows(1))
    error = DeliveryTimeout("closed")
    stopped = sending.handle(Stopped(error))
    assert stopped == [
        FailSubBatch(rows(0), error), FailSubBatch(rows(5), error), FailSubBatch(rows(1), error),
        NotifySession(1), EndProducer(error),
    ]  # fmt: skip
    assert sending.next() is NoBatch.END
    assert sending.handle(SessionEnded(1, Unreachable("aborted"), is_planned=False)) == []
    assert only(EndProducer, sending.handle(Stopped(InvalidRequest("again")))) == [EndProducer(error)]
