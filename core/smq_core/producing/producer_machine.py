"""The state machine of a producer: where rows go, which sessions it opens, and what follows when segments are replaced.

Each segment has a send queue and a sender. A partition moves on to a successor only when its present queue is resolved.
What waits in that queue is sent first, which keeps the order of each key. A queue is resolved by acks, or by the
segment's outcome, which comes in its session or from any broker.

Sub-batches get the schema version of their segment when they enter its queue. If one cannot, the producer halts:
nothing more is sent, and only what is in flight already may still be acked.

An event gives instructions, which the caller carries out. ``next_batch`` is the other output: a session takes batches
when its lane has room. Only one caller at a time. All times are in seconds, of any clock that does not go back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from smq_core.errors import (
    GrantMissing,
    InvalidRequest,
    NotHosted,
    NotOpenYet,
    Overloaded,
    ProducerFenced,
    QuotaExceeded,
    SchemaMismatch,
    SmqError,
    UnknownTopic,
    is_denial,
)
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout, Replica, Segment
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
from smq_core.producing.routes import Route, spans_of
from smq_core.producing.segment_sender import NoBatch, SegmentSender
from smq_core.producing.send_queue import QueuedSubBatch, SendQueues, SendQueueState, SentSubBatch
from smq_core.producing.topic_rows import TopicRows

# How long after a segment's last ack the sessions for its successors are opened ahead. Later they open when needed.
OPEN_AHEAD_SECONDS = 10.0
# After this long without a reply in the session, other brokers are queried for the outcome.
OUTCOME_POLL_DELAY_SECONDS = 0.3
EXPIRY_INTERVAL_SECONDS = 0.5
# How early a tick may come.
TICK_SLACK_SECONDS = 0.001

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """``instance`` is the nonce of the process."""

    producer: str
    epoch: int
    instance: str


@dataclass(frozen=True, slots=True)
class MissingOutcome:
    """``replicas`` are at the brokers to query, those that host a successor first."""

    segment: Segment
    replicas: tuple[Replica, ...]


class ProducerMachine:
    """``timeout_seconds`` is how long a sub-batch may wait for its outcome."""

    def __init__(self, identity: ProducerIdentity, layout: Layout, rows: TopicRows, timeout_seconds: float) -> None:
        self.failure: SmqError | None = None
        """Why nothing more is accepted."""
        self.send_queues = SendQueues()
        self.route = Route.of(layout.writable_segments, layout.partitions)
        self._identity = identity
        self._rows = rows
        self._timeout_seconds = timeout_seconds
        self._layout = layout
        self._targets = self.route
        """Where partitions go once the queues of their present segments are resolved."""
        self._senders: dict[str, SegmentSender] = {}
        self._sessions: dict[int, SegmentSender] = {}
        self._held_back: set[int] = set()
        """Sessions in which something waits for what is in flight to other segments."""
        self._last_session = 0
        self._outcomes: dict[str, SealOutcome] = {}
        self._is_fetching = False
        self._expires_at = NEVER
        """When to look for what has waited too long."""
        self._wakes_at = NEVER
        """The time of the last ``WakeAt``. A tick before that is of an earlier one."""
        self._wanted_at = NEVER
        """The earliest wake that the present event needs."""
        self._instructions: list[Instruction] = []
        self.send_queues.update_layout(layout.segments)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        match event:
            case Submitted(parts):
                for segment, sub_batch in parts:
                    self._enqueue(segment, sub_batch, now)
            case Acked(session):
                if (sender := self._sessions.get(session)) is not None:
                    self._acked(sender, event, now)
            case SessionOpened(session=session):
                if (sender := self._sessions.get(session)) is not None:
                    self._opened(sender, event, now)
            case Rejected(session):
                if (sender := self._sessions.get(session)) is not None:
                    self._rejected(sender, event)
            case SessionFailed(session):
                if (sender := self._sessions.get(session)) is not None:
                    self._session_failed(sender, event.error)
            case SessionEnded():
                self._session_ended(event, now)
            case Sealed(session):
                if session is None or session in self._sessions:
                    self._sealed(event.outcome, event.successors, now)
            case LayoutChanged(layout):
                self._layout_changed(layout, now)
            case UploadEnded():
                self._upload_ended(event, now)
            case Stopped(error):
                self._fail(error)
            case Tick():
                self._tick(now)
        self._plan_wake()
        instructions, self._instructions = self._instructions, []
        return instructions

    # ---- what a caller may read

    def next_batch(self, session: int, now: float) -> SentSubBatch | NoBatch:
        """What to send in this session now."""
        sender = self._sessions.get(session)
        if sender is None:
            return NoBatch.END
        found = sender.next_batch(self.send_queues.may_send, now)
        if sender.is_held_back:
            self._held_back.add(session)
        return found

    def is_session_idle(self, session: int) -> bool:
        """Whether nothing is to be sent in this session, and nothing is unacked."""
        sender = self._sessions.get(session)
        return sender is None or sender.send_queue.idle

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, and nothing is in flight."""
        return all(send_queue.idle for send_queue in self.send_queues.send_queues.values())

    def missing_outcomes(self, now: float) -> list[MissingOutcome] | None:
        """The outcomes to fetch now; None if no more will be needed, until ``FetchOutcomes`` comes again."""
        moving = [it for it in self._senders.values() if it.replaced_at is not None and not it.send_queue.idle]
        if not moving:
            self._is_fetching = False
            return None
        found = []
        for sender in moving:
            assert sender.replaced_at is not None
            last_reply_at = max(sender.replaced_at, sender.acked_at)
            if sender.session is None or now - last_reply_at >= OUTCOME_POLL_DELAY_SECONDS:
                segment = sender.send_queue.segment
                found.append(MissingOutcome(segment, self._replicas_to_query(segment)))
        return found

    def _replicas_to_query(self, segment: Segment) -> tuple[Replica, ...]:
        successors = [it for it in self._targets.segments if it.range.overlaps(segment.range)]
        return tuple(dict.fromkeys(r for it in (*successors, *self._layout.segments) for r in it.replicas))

    # ---- queues

    def _enqueue(self, segment: Segment, sub_batch: QueuedSubBatch, now: float) -> None:
        if self.failure is not None:
            self._instructions.append(FailSubBatch(sub_batch, self.failure))
            return
        try:
            sub_batch = self._rows.reshape(sub_batch, segment)
        except SchemaMismatch as error:
            self._halt(error)
            self._instructions.append(FailSubBatch(sub_batch, error))
            return
        except SmqError as error:
            self._instructions.append(FailSubBatch(sub_batch, error))
            return
        send_queue = self.send_queues.send_queue(segment)
        send_queue.queue.append(sub_batch)
        self._plan_expiry(now)
        sender = self._senders.get(segment.name)
        if sender is None:
            sender = self._senders[segment.name] = SegmentSender(send_queue)
        elif sender.replaced_at is not None:
            self._fetch_outcomes()  # the session may never deliver the outcome
        self._notify(sender, now)

    def _upload_ended(self, event: UploadEnded, now: float) -> None:
        if event.error is not None:
            for send_queue in self.send_queues.send_queues.values():
                failed = [it for it in send_queue.queue if it.large_value is event.large_value]
                self._instructions += [FailSubBatch(it, event.error) for it in failed]
                send_queue.queue = deque(it for it in send_queue.queue if it.large_value is not event.large_value)
        self._notify_all(now)

    def _plan_expiry(self, now: float) -> None:
        if self._expires_at == NEVER:
            self._expires_at = now + min(EXPIRY_INTERVAL_SECONDS, self._timeout_seconds / 4)
            self._wake_at(self._expires_at)

    def _expire(self, now: float) -> None:
        """What was not sent is dropped. The rest stays until its outcome is known."""
        oldest = now - self._timeout_seconds
        is_dropped = False
        for send_queue in self.send_queues.send_queues.values():
            sender = self._senders.get(send_queue.segment.name)
            cause = sender.last_failure if sender is not None else None
            for sent in send_queue.in_flight:
                if sent.sub_batch.created_at > oldest:
                    break
                self._instructions.append(ExpireSubBatch(sent.sub_batch, is_sent=True, cause=cause))
            while send_queue.queue and send_queue.queue[0].created_at <= oldest:
                self._instructions.append(ExpireSubBatch(send_queue.queue.popleft(), is_sent=False, cause=cause))
                is_dropped = True
        if is_dropped:
            self._notify_all(now)  # what was dropped may have held back what is behind it

    def _halt(self, error: SchemaMismatch) -> None:
        """Ends the producer before anything overtakes what cannot be sent. What is in flight gets its outcome."""
        self.failure = error
        for send_queue in self.send_queues.send_queues.values():
            self._instructions += [FailSubBatch(it, error) for it in send_queue.queue]
            send_queue.queue.clear()
        self._instructions.append(EndProducer(error))

    def _fail(self, error: SmqError) -> None:
        """Ends the producer: everything without an outcome fails."""
        self.failure = self.failure or error
        for send_queue in self.send_queues.send_queues.values():
            waiting = (*(sent.sub_batch for sent in send_queue.in_flight), *send_queue.queue)
            self._instructions += [FailSubBatch(it, error) for it in waiting]
            send_queue.in_flight.clear()
            send_queue.queue.clear()
            send_queue.to_resend = 0
            send_queue.state = SendQueueState.DONE
        self._instructions += [NotifySession(session) for session in self._sessions]
        self._instructions.append(EndProducer(self.failure))

    # ---- sessions

    def _notify(self, sender: SegmentSender, now: float) -> None:
        """Something has changed that may allow to send, or to open a session."""
        if sender.session is not None:
            self._instructions.append(NotifySession(sender.session))
        elif sender.needs_session:
            if now >= sender.retry_at:
                self._open(sender, now)
            else:
                self._wake_at(sender.retry_at)

    def _notify_all(self, now: float) -> None:
        for sender in self._senders.values():
            self._notify(sender, now)

    def _open(self, sender: SegmentSender, now: float) -> None:
        self._last_session += 1
        self._sessions[self._last_session] = sender
        sender.open(self._last_session, now)
        self._instructions.append(OpenSession(self._last_session, sender.send_queue.segment, sender.is_bulk))

    def _opened(self, sender: SegmentSender, event: SessionOpened, now: float) -> None:
        try:
            unknown = sender.send_queue.opened(event.last_sequence, end=event.end, forgotten_upto=event.forgotten_upto)
        except SmqError as error:  # another process writes as this one, or the log lacks what it acked
            self._fail(error)
            return
        self._instructions += map(ForgetSubBatch, unknown)
        sender.opened()
        self._notify(sender, now)

    def _acked(self, sender: SegmentSender, event: Acked, now: float) -> None:
        sender.acked(now)
        self._instructions += sender.send_queue.acked(event.first_sequence, event.first_offsets)
        if sender.send_queue.has_waiting:
            self._notify(sender, now)
        self._release_held_back(sender)

    def _rejected(self, sender: SegmentSender, event: Rejected) -> None:
        sub_batch = sender.send_queue.rejected(event.sequence)
        if sub_batch is not None:
            self._instructions.append(FailSubBatch(sub_batch, event.error))
        self._instructions.append(NotifySession(event.session))
        self._release_held_back(sender)

    def _release_held_back(self, sender: SegmentSender) -> None:
        """Segments that replace this one may send as soon as nothing of it is left, before its outcome is known."""
        if self._held_back and sender.send_queue.idle:
            self._instructions += [NotifySession(session) for session in self._held_back if session in self._sessions]
            self._held_back.clear()

    def _session_failed(self, sender: SegmentSender, error: SmqError) -> None:
        sender.failure = error
        if isinstance(error, UnknownTopic):
            self._fail(error)  # no later reply can change that

    def _session_ended(self, event: SessionEnded, now: float) -> None:
        sender = self._sessions.pop(event.session, None)
        failure = event.failure
        if sender is not None:
            failure = sender.ended(failure, is_planned=event.is_planned, now=now)
        if failure is not None and (isinstance(failure, (ProducerFenced, InvalidRequest)) or is_denial(failure)):
            self._fail(failure)
        if isinstance(failure, QuotaExceeded) and sender is not None and sender.is_refused_for_good(now):
            self._fail(failure)
        if sender is None or sender.send_queue.state is SendQueueState.DONE:
            return
        by_error = failure is not None or not event.is_planned
        if by_error and not isinstance(failure, (NotOpenYet, NotHosted, Overloaded, GrantMissing)):
            self._instructions.append(ReportUnreachable(sender.send_queue.segment.primary, failure))
        if sender.replaced_at is not None:
            self._advance(now)
        self._notify(sender, now)

    def _drop_session(self, sender: SegmentSender) -> None:
        """The session ends when it looks for its next batch."""
        if sender.session is not None:
            del self._sessions[sender.session]
            self._instructions.append(NotifySession(sender.session))

    # ---- segments that are replaced

    def _layout_changed(self, layout: Layout, now: float) -> None:
        self._layout = layout
        self.send_queues.update_layout(layout.segments)
        self._retarget(layout)
        self._advance(now)
        self._drop_unused()
        self._open_ahead(now)
        names = {segment.name for segment in layout.segments}
        self.send_queues.discard_done(names | {name for segment in layout.segments for name in segment.predecessors})

    def _retarget(self, layout: Layout) -> None:
        """Sets where partitions should go. A segment whose queue is done is no target, even if the layout has it."""
        fresh = Route.of(layout.writable_segments, layout.partitions)
        for segment in fresh.segments:
            send_queue = self.send_queues.send_queues.get(segment.name)
            if send_queue is not None and send_queue.state is SendQueueState.DONE:
                fresh = fresh.replaced(segment, self._targets.spans)
        self._targets = fresh

    def _drop_unused(self) -> None:
        """Ends sessions that were opened ahead for segments that were replaced before anything was sent to them.

        Messages wait and are in flight only for segments of the route.
        """
        used = {segment.name for segment in (*self._targets.segments, *self.route.segments)}
        for name in [name for name in self._senders if name not in used]:
            sender = self._senders.pop(name)
            sender.send_queue.state = SendQueueState.DONE
            self._drop_session(sender)
            self._outcomes.pop(name, None)

    def _open_ahead(self, now: float) -> None:
        """Opens sessions for the successors of segments that are being written to."""
        since = now - OPEN_AHEAD_SECONDS
        written = {n for n, sender in self._senders.items() if sender.acked_at > since or not sender.send_queue.idle}
        bulk = {n for n, sender in self._senders.items() if sender.is_bulk}
        for segment in self._targets.segments:
            if segment.name not in self._senders and not written.isdisjoint(segment.predecessors):
                sender = self._senders[segment.name] = SegmentSender(
                    self.send_queues.send_queue(segment),
                    open_ahead=True,
                    is_bulk=not bulk.isdisjoint(segment.predecessors),
                )
                self._notify(sender, now)

    def _sealed(self, outcome: SealOutcome, successors: tuple[Segment, ...], now: float) -> None:
        """Takes in the outcome of a segment, in its session or from any other broker."""
        send_queue = self.send_queues.send_queues.get(outcome.segment)
        if send_queue is None or send_queue.state is SendQueueState.DONE:
            return
        identity = self._identity
        try:
            send_queue.check_fence(outcome, identity.producer, identity.epoch, identity.instance)
        except ProducerFenced as error:
            self._fail(error)
            return
        self._outcomes[outcome.segment] = outcome
        self._require_outcome(self._senders[outcome.segment], now)
        # Without their schema the successors cannot be written to: then the next layout names the targets.
        is_target = any(it.name == outcome.segment for it in self._targets.segments)
        if successors and is_target and self._rows.has_schemas(successors):
            self.send_queues.update_layout(successors)
            open_ones = [it for it in successors if not it.successors]
            self._targets = self._targets.replaced(send_queue.segment, spans_of(open_ones))
            self._drop_unused()
        self._advance(now)

    def _advance(self, now: float) -> None:
        """Moves on from every segment that is being replaced and whose outcome is known or not needed."""
        moved = True
        while moved:
            moved = False
            wanted = {segment.name for segment in self._targets.segments}
            for segment in self.route.segments:
                if segment.name in wanted:
                    continue
                if self._may_leave(segment):
                    self._switch_to_successors(segment, now)
                    moved = True
                    break
                self._require_outcome(self._senders[segment.name], now)

    def _require_outcome(self, sender: SegmentSender, now: float) -> None:
        if sender.replaced_at is None:
            sender.replaced_at = now
        self._fetch_outcomes()

    def _may_leave(self, segment: Segment) -> bool:
        """Whether the queue of a segment that is being replaced may move on.

        While its session works, the queue stays: the segment still accepts messages, and its primary sends the outcome
        there when it is sealed. Moving on earlier would only mean waiting for the successors.
        """
        send_queue = self.send_queues.send_queues.get(segment.name)
        if send_queue is None or send_queue.state is SendQueueState.DONE or segment.name in self._outcomes:
            return True
        return not send_queue.in_flight and send_queue.state is not SendQueueState.STREAMING

    def _switch_to_successors(self, segment: Segment, now: float) -> None:
        """Routes this segment's partitions to their targets from now on, beginning with what its queue still holds."""
        unresolved: list[QueuedSubBatch] = []
        send_queue = self.send_queues.send_queues.get(segment.name)
        outcome = self._outcomes.pop(segment.name, None)
        if send_queue is not None and send_queue.state is not SendQueueState.DONE:
            identity = self._identity
            resolution = send_queue.resolve(outcome, identity.producer, identity.epoch, identity.instance)
            self._instructions += resolution.delivered
            self._instructions += map(ForgetSubBatch, resolution.unknown)
            unresolved = resolution.resend
        self.route = self.route.replaced(segment, self._targets.spans)
        for sub_batch in unresolved:
            for target, part in self._rows.split(sub_batch, self.route):
                self._enqueue(target, part, now)
        sender = self._senders.pop(segment.name, None)
        if sender is not None:
            self._drop_session(sender)
        self._notify_all(now)  # a predecessor is done, so some may send now
        successors = tuple(it for it in self.route.segments if segment.name in it.predecessors)
        self._instructions.append(RecordMove(segment, successors, len(unresolved)))

    # ---- time

    def _tick(self, now: float) -> None:
        if now < self._wakes_at - TICK_SLACK_SECONDS:
            return
        now = max(now, self._wakes_at)
        self._wakes_at = NEVER
        if now >= self._expires_at:
            self._expires_at = NEVER
            self._expire(now)
            if not self.is_idle:
                self._plan_expiry(now)
        elif self._expires_at < NEVER:
            self._wake_at(self._expires_at)
        for sender in self._senders.values():
            if sender.session is None:
                self._notify(sender, now)

    def _wake_at(self, at: float) -> None:
        self._wanted_at = min(self._wanted_at, at)

    def _plan_wake(self) -> None:
        """One for each event at most, so that ticks do not become more and more."""
        if self._wanted_at < self._wakes_at:
            self._wakes_at = self._wanted_at
            self._instructions.append(WakeAt(self._wanted_at))
        self._wanted_at = NEVER

    def _fetch_outcomes(self) -> None:
        if not self._is_fetching:
            self._is_fetching = True
            self._instructions.append(FetchOutcomes())
