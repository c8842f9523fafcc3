"""The engine of a producer: carries out what its machine instructs, with sessions, timers, budget and deliveries.

One lock guards the machine and what belongs to it; docs/threads.md says which thread takes it. Decisions are in
``smq_core.producing.producer_machine``. Sessions are on lanes that all producers of the client share. The client's
timers bring the time, and its background worker fetches seal outcomes while any are missing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from smq.lock_order import ClientLock
from smq.producing.batch_outcomes import BatchOutcomes
from smq.producing.batching.partitioning import SubBatch, partition_by_segment
from smq.producing.batching.topic_rows import TopicRows
from smq.producing.callbacks import Callbacks, run_callbacks
from smq.producing.delivery_state import DeliveryState
from smq.producing.encoding.keys import RowPartitions
from smq.producing.in_flight_budget import InFlightBudget
from smq.producing.lanes.session import Session
from smq.producing.producer_runtime import ProducerRuntime
from smq.producing.seal_outcomes import SealOutcomeClient
from smq.producing.uploads.large_values import PendingLargeValue
from smq.transport.topic_view import TopicSnapshot, TopicView
from smq_core.errors import InvalidRequest, SchemaMismatch, SmqError, UnknownTopic
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
    FetchOutcomes,
    Instruction,
    NotifySession,
    OpenSession,
    RecordMove,
    ReportUnreachable,
    WakeAt,
)
from smq_core.producing.producer_machine import ProducerIdentity, ProducerMachine
from smq_core.producing.segment_sender import NoBatch
from smq_core.producing.send_queue import SentSubBatch
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_from_pb, segment_from_pb
from smq_storage.process.locks import make_lock, requires_lock

log = logging.getLogger(__name__)

# Applies until a broker reports its own limit.
DEFAULT_MAX_BATCH_BYTES = 16 << 20

# In acks: the batch is in the log, but its offset is no longer known.
OFFSET_UNKNOWN = (1 << 64) - 1


class ProducerEngine:
    """See the module's docstring. ``timeout`` is in seconds, ``max_in_flight`` in bytes.

    The engine calls ``on_resolved`` without the lock after some batches have got their outcomes.
    """

    def __init__(
        self,
        view: TopicView,
        *,
        producer_id: str,
        epoch: int,
        instance: str,
        timeout: float,
        max_in_flight: int,
        on_resolved: Callable[[], None],
        runtime: ProducerRuntime,
    ) -> None:
        self.view = view
        self.lock = make_lock(ClientLock.ENGINE)
        self.failure: SmqError | None = None
        self.max_batch_bytes = DEFAULT_MAX_BATCH_BYTES
        self._runtime = runtime
        self._snapshot: TopicSnapshot = view.snapshot
        self._rows = TopicRows(view.name, self._snapshot)
        identity = ProducerIdentity(producer_id, epoch, instance)
        self._hello = pb.ProducerHello(producer=producer_id, epoch=epoch, instance=instance)
        self._machine = ProducerMachine(identity, self._snapshot.layout, self._rows, timeout)
        self._sessions: dict[int, Session] = {}
        self._budget = InFlightBudget(view.name, max_in_flight, self.lock)
        self._results = BatchOutcomes(view.name, producer_id, timeout, self._budget)
        self._routing_lock = make_lock(ClientLock.ROUTING)
        self._on_resolved = on_resolved
        view.add_listener(self._on_layout_changed)

    @property
    def in_flight(self) -> int:
        """The bytes that were reserved and have no outcome yet."""
        return self._budget.used

    # ---- from the producer

    @property
    def max_undivided_bytes(self) -> int:
        """The most bytes of a call that is sent as a whole or not at all.

        Half of the limit. A larger call would wait until the one before is acked, and brokers would be idle meanwhile.
        """
        return self._budget.limit // 2

    def reserve(self, nbytes: int, timeout: float) -> None:
        """Waits until the budget has capacity; any size fits if nothing is in flight. Raises Overloaded."""
        with self.lock:
            self._budget.wait(nbytes, timeout)
            self._raise_failure()
            self._budget.add(nbytes)

    def submit(self, sub_batch: SubBatch, row_partitions: RowPartitions | None = None) -> None:
        """Queues a whole batch whose ``cost`` was reserved. Raises the error that ended the producer, if any.

        ``row_partitions`` as in :func:`partition_by_segment`.

        If a segment has no column for some of its values, the delivery fails and the producer ends.
        """
        callbacks: Callbacks = []
        with self._routing_lock:
            while True:
                route = self._machine.route
                parts = partition_by_segment(sub_batch, self._rows.table(route), row_partitions)
                with self.lock:
                    self._raise_failure()
                    if route is self._machine.route:
                        callbacks = self._apply(Submitted(parts))
                        break
                    # Otherwise the layout changed during the partitioning.
        run_callbacks(callbacks)

    def wait_for_capacity(self, timeout: float) -> None:
        """Waits until another batch may be started. Raises Overloaded, or the error that ended the producer."""
        with self.lock:
            self._budget.wait(0, timeout)
            self._raise_failure()

    def reserve_now(self, nbytes: int) -> None:
        """Counts a batch that was started while there was capacity, without waiting."""
        with self.lock:
            self._budget.add(nbytes)

    def release(self, nbytes: int) -> None:
        """Gives a reservation back that is not needed any more."""
        with self.lock:
            self._budget.release(nbytes)

    @property
    def full(self) -> bool:
        return self._budget.full or self.failure is not None

    def fail_batch(self, delivery_state: DeliveryState, cost: int, error: BaseException) -> None:
        """Fails a batch that could not be submitted."""
        with self.lock:
            self._budget.release(cost)
            callbacks = delivery_state.failed(None, error)
        run_callbacks(callbacks)

    def large_value_done(self, large_value: PendingLargeValue, error: SmqError | None) -> None:
        """The upload has ended. Sends the message and what waits behind it; with an ``error``, the message fails."""
        with self.lock:
            large_value.uploaded, large_value.error = error is None, error
            self._budget.release(large_value.reserved)
            large_value.reserved = 0
            callbacks = self._apply(UploadEnded(large_value, error))
        run_callbacks(callbacks)
        self._on_resolved()

    def close(self) -> None:
        """Ends all sessions and fails what is still in flight. Repeatable. A delivery callback may call it."""
        self.view.remove_listener(self._on_layout_changed)
        self.fail(InvalidRequest("the producer is closed"))

    def fail(self, error: SmqError) -> None:
        """Ends the producer: everything without an outcome fails with this error."""
        self._handle(Stopped(error))

    @requires_lock("lock")
    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    # ---- from the sessions

    @requires_lock("lock")
    def next_batch(self, session: int) -> SentSubBatch | NoBatch:
        """What to send in this session now."""
        return self._machine.next_batch(session, time.monotonic())

    def is_idle(self, session: int) -> bool:
        """Whether nothing is to be sent in this session, and nothing is unacked."""
        return self._machine.is_session_idle(session)

    def on_reply(self, session: int, reply: pb.ProducerReply) -> None:
        if reply.HasField("opened"):
            self.max_batch_bytes = reply.opened.max_batch_bytes or self.max_batch_bytes
        event = event_of(session, reply)
        if isinstance(event, SessionFailed):
            log.info("session %d of %s failed: %s", session, self.view.name, event.error.message)
        self._handle(event)
        self._on_resolved()

    def on_end(self, session: int, failure: SmqError | None, *, is_planned: bool) -> None:
        """The session has ended, by a ``failure`` or not. ``is_planned``: another one may be opened at once."""
        if failure is not None:
            log.info("session %d of %s ended: %s", session, self.view.name, failure.message)
        with self.lock:
            self._sessions.pop(session, None)
            callbacks = self._apply(SessionEnded(session, failure, is_planned))
        run_callbacks(callbacks)

    # ---- from the timers, the worker that fetches outcomes, and the view

    def _tick(self) -> None:
        self._handle(Tick())
        deleted = self.view.deleted
        if deleted is not None and self.failure is None:
            self.fail(deleted)

    def _fetch_outcomes(self, client: SealOutcomeClient) -> bool:
        """One round. False: no outcome is missing any more."""
        with self.lock:
            missing = self._machine.missing_outcomes(time.monotonic())
        if missing is None:
            return False
        for it in missing:
            found = client.fetch(self._snapshot.topic, it.segment.name, self._hello.producer, it.replicas)
            if found is not None:
                self._handle(Sealed(None, *found))
        return True

    def _on_layout_changed(self, snapshot: TopicSnapshot) -> None:
        callbacks: Callbacks = []
        with self.lock:
            is_same = snapshot.topic.uid == self._snapshot.topic.uid
            if is_same and snapshot.layout.version > self._snapshot.layout.version:
                self._snapshot = snapshot
                self._rows.update(snapshot)
                callbacks = self._apply(LayoutChanged(snapshot.layout))
        run_callbacks(callbacks)
        if not is_same:
            self.fail(UnknownTopic(f"{self.view.name} was deleted and created again: open a new producer"))

    # ---- instructions

    def _handle(self, event: Event) -> None:
        with self.lock:
            callbacks = self._apply(event)
        run_callbacks(callbacks)

    @requires_lock("lock")
    def _apply(self, event: Event) -> Callbacks:
        callbacks: Callbacks = []
        for instruction in self._machine.handle(event, time.monotonic()):
            callbacks += self._carry_out(instruction)
        return callbacks

    @requires_lock("lock")
    def _carry_out(self, instruction: Instruction) -> Callbacks:
        match instruction:
            case NotifySession(number):
                session = self._sessions.get(number)
                if session is not None:
                    session.notify()
            case OpenSession(number, segment, is_bulk):
                self._sessions[number] = self._runtime.lanes.open_session(
                    segment,
                    topic=self._snapshot.topic.name,
                    uid=self._snapshot.topic.uid,
                    schema=self._rows.message_schema(segment),
                    hello=self._hello,
                    owner=self,
                    session=number,
                    is_bulk=is_bulk,
                )
            case WakeAt(at):
                self._runtime.timers.call_at(at, self._tick)
            case FetchOutcomes():
                self._runtime.outcomes.add(self._fetch_outcomes)
            case ReportUnreachable(replica, failure):
                what = failure.message if failure is not None else "the lane broke"
                self._runtime.unreachable.report(self.view, replica.incarnation, what)
            case RecordMove(segment, successors, resent):
                names = ", ".join(it.name for it in successors) or "others"
                log.info("%s is replaced by %s; %d batches are sent there", segment.name, names, resent)
            case EndProducer(error):
                if isinstance(error, SchemaMismatch):
                    log.warning("the producer of %s stops: %s", self.view.name, error.message)
                self.failure = error
                self._budget.close()
            case _:
                return self._results.apply(instruction)
        return []


def event_of(session: int, reply: pb.ProducerReply) -> Event:
    """What a primary's reply says. Raises SmqError if it says nothing that is known."""
    match reply.WhichOneof("reply"):
        case "acks":
            offsets = [None if offset == OFFSET_UNKNOWN else offset for offset in reply.acks.first_offsets]
            return Acked(session, reply.acks.first_sequence, offsets)
        case "opened":
            opened = reply.opened
            last = opened.last_sequence if opened.HasField("last_sequence") else None
            return SessionOpened(
                session=session, last_sequence=last, end=opened.end, forgotten_upto=opened.forgotten_upto
            )
        case "rejected":
            return Rejected(session, reply.rejected.sequence, error_from_pb(reply.rejected.error))
        case "sealed":
            successors = tuple(segment_from_pb(it) for it in reply.sealed.successors)
            return Sealed(session, outcome_from_pb(reply.sealed), successors)
        case "error":
            return SessionFailed(session, error_from_pb(reply.error))
        case other:
            raise InvalidRequest(f"a broker replied {other!r}, which this client does not know: use one of its release")
