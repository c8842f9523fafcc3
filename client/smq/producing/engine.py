"""The engine of a producer: routes sub-batches to send queues, takes acks, and moves on when segments are replaced.

One lock guards everything; docs/threads.md says which thread takes it. Each segment has a sender
(``lanes.segment_sender``), whose batches go on lanes that all producers of the client share. The client's timers look
for timeouts (``producer_monitor``), and its background worker fetches seal outcomes while any are missing
(``outcome_fetcher``). A partition moves on to a successor only when its present send queue is resolved. What waits in
that queue is sent first, which keeps the order of each key.

Sub-batches get the schema version of their segment (``sub_batch_versions``) when they enter its queue. If one cannot,
the engine halts: nothing more is sent, and only what is in flight already may still be acked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from smq.lock_order import ClientLock
from smq.producing.batch_outcomes import BatchOutcomes
from smq.producing.batching.partitioning import RoutingTable, SubBatch, partition_by_segment
from smq.producing.batching.sub_batch_versions import reshaped
from smq.producing.callbacks import Callbacks, run_callbacks
from smq.producing.delivery_state import DeliveryState
from smq.producing.encoding.keys import RowPartitions
from smq.producing.in_flight_budget import InFlightBudget
from smq.producing.lanes.segment_sender import SegmentSender, Session
from smq.producing.outcome_fetcher import OutcomeFetcher, outcome_addresses
from smq.producing.producer_monitor import ProducerMonitor
from smq.producing.producer_runtime import ProducerRuntime
from smq.producing.uploads.large_values import PendingLargeValue
from smq.transport.schema_versions import SchemaVersions
from smq.transport.topic_view import TopicSnapshot, TopicView
from smq_core.errors import (
    InvalidRequest,
    ProducerFenced,
    ReferenceRejected,
    SchemaMismatch,
    SmqError,
    UnknownTopic,
)
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Replica, Segment
from smq_core.producing.send_queue import SendQueue, SendQueues, SendQueueState
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_from_pb, segment_from_pb
from smq_storage.process.locks import make_lock, requires_lock

log = logging.getLogger(__name__)

# How long after a segment's last ack the sessions for its successors are opened ahead. Later they open when needed.
OPEN_AHEAD_SECONDS = 10.0

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
        self._runtime = runtime
        self.producer_id = producer_id
        self._uid = view.snapshot.topic.uid
        self._epoch = epoch
        self._instance = instance
        self.lock = make_lock(ClientLock.ENGINE)
        self.send_queues = SendQueues(epoch)
        self.stopping = False
        self.failure: SmqError | None = None
        self.max_batch_bytes = DEFAULT_MAX_BATCH_BYTES
        self._snapshot: TopicSnapshot = view.snapshot
        self._versions = SchemaVersions(self._snapshot)
        self._targets = RoutingTable.of(self._snapshot.layout.writable_segments, self._snapshot.layout.partitions)
        self._route = self._targets
        self._senders: dict[str, SegmentSender] = {}
        self._outcomes: dict[str, SealOutcome] = {}
        self._budget = InFlightBudget(view.name, max_in_flight, self.lock)
        self._results = BatchOutcomes(view.name, producer_id, self._budget)
        self._routing_lock = make_lock(ClientLock.ROUTING)
        self._closing = threading.Event()
        self._on_resolved = on_resolved
        self._outcome_fetcher = OutcomeFetcher(
            self._snapshot.topic,
            producer=producer_id,
            worker=runtime.outcomes,
            lock=self.lock,
            closing=self._closing,
            senders=self._senders,
            ended=lambda: self.stopping,
            addresses=lambda it: outcome_addresses(it, self._targets.segments, self._snapshot.layout.segments),
            on_outcome=self._on_outcome,
        )
        self.send_queues.update_layout(self._snapshot.layout.segments)
        view.add_listener(self._on_layout_changed)
        self._monitor = ProducerMonitor(
            runtime.timers,
            lock=self.lock,
            closing=self._closing,
            send_queues=self.send_queues.send_queues,
            senders=self._senders,
            budget=self._budget,
            timeout=timeout,
            on_check=self._check_deleted,
        )

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
                route = self._route
                parts = partition_by_segment(sub_batch, route, row_partitions)
                with self.lock:
                    self._raise_failure()
                    if route is self._route:
                        for segment, part in parts:
                            callbacks += self._enqueue(segment, part)
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
        callbacks: Callbacks = []
        with self.lock:
            large_value.uploaded, large_value.error = error is None, error
            self._budget.release(large_value.reserved)
            large_value.reserved = 0
            if error is not None:
                for send_queue in self.send_queues.send_queues.values():
                    failed = [it for it in send_queue.queue if _large_value_of(it) is large_value]
                    if failed:
                        kept = [it for it in send_queue.queue if it is not failed[0]]
                        send_queue.queue.clear()
                        send_queue.queue.extend(kept)
                        callbacks += self._results.failed(failed, error)
            for sender in self._senders.values():
                sender.notify()
        run_callbacks(callbacks)
        self._on_resolved()

    def close(self) -> None:
        """Ends all sessions and fails what is still in flight. Repeatable. A delivery callback may call it."""
        self.view.remove_listener(self._on_layout_changed)
        with self.lock:
            self.stopping = True
            for sender in self._senders.values():
                sender.notify()
        self._closing.set()
        self.fail(InvalidRequest("the producer is closed"))

    def fail(self, error: SmqError) -> None:
        """Ends the producer: everything without an outcome fails with this error."""
        callbacks: Callbacks = []
        with self.lock:
            if self.failure is None:
                self.failure = error
            for send_queue in self.send_queues.send_queues.values():
                for sub_batch in [*(s.sub_batch for s in send_queue.in_flight), *send_queue.queue]:
                    assert isinstance(sub_batch, SubBatch)
                    callbacks += sub_batch.delivery_state.failed(sub_batch.rows, error)
                send_queue.in_flight.clear()
                send_queue.queue.clear()
                send_queue.to_resend = 0
                send_queue.state = SendQueueState.DONE
            for sender in self._senders.values():
                sender.notify()
            self._budget.close()
        run_callbacks(callbacks)

    # ---- from the segment senders

    @requires_lock("lock")
    def open_session(self, sender: SegmentSender) -> Session:
        segment = sender.send_queue.segment
        hello = pb.ProducerHello(producer=self.producer_id, epoch=self._epoch, instance=self._instance)
        schema = self._versions.message_schema(segment.schema_version)
        return self._runtime.lanes.open_session(segment, self._uid, schema, hello, self, sender)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self._runtime.timers.call_later(seconds, call)

    @requires_lock("lock")
    def may_send(self, send_queue: SendQueue) -> bool:
        """Whether the queues of all its ancestors are done."""
        return self.send_queues.may_send(send_queue)

    # ---- from the sessions

    def on_reply(self, session: Session, reply: pb.ProducerReply) -> None:
        kind = reply.WhichOneof("reply")
        callbacks: Callbacks = []
        fatal: SmqError | None = None
        with self.lock:
            sender = self._senders.get(session.segment.name)
            if sender is None or sender.session is not session:
                return  # from an aborted session
            send_queue = sender.send_queue
            if send_queue.state is SendQueueState.DONE:
                return
            try:
                if kind == "opened":
                    last = reply.opened.last_sequence if reply.opened.HasField("last_sequence") else None
                    self.max_batch_bytes = reply.opened.max_batch_bytes or self.max_batch_bytes
                    unknown = send_queue.opened(last, end=reply.opened.end, forgotten_upto=reply.opened.forgotten_upto)
                    callbacks = self._results.unknown(unknown)
                    sender.opened()
                    sender.notify()
                elif kind == "acks":
                    offsets = [None if o == OFFSET_UNKNOWN else o for o in reply.acks.first_offsets]
                    sender.acked(time.monotonic())
                    delivered = send_queue.acked(reply.acks.first_sequence, offsets)
                    callbacks = self._results.delivered(delivered)
                    if send_queue.has_waiting:
                        sender.notify()
                elif kind == "rejected":
                    rejected = send_queue.rejected(reply.rejected.sequence)
                    error = error_from_pb(reply.rejected.error)
                    callbacks = self._results.failed([rejected] if rejected else [], error)
                    sender.notify()
                elif kind == "sealed":
                    successors = tuple(segment_from_pb(s) for s in reply.sealed.successors)
                    callbacks = self._on_sealed(outcome_from_pb(reply.sealed), successors)
                elif kind == "error":
                    sender.failure = error_from_pb(reply.error)
                    if isinstance(sender.failure, UnknownTopic):
                        fatal = sender.failure  # no later reply can change that
            except SmqError as error:
                fatal = error
        run_callbacks(callbacks)
        self._on_resolved()
        if fatal is not None:
            self._fail_and_abort(session, fatal)

    def on_end(self, session: Session) -> None:
        callbacks: Callbacks = []
        with self.lock:
            sender = self._senders.get(session.segment.name)
            if sender is not None and sender.session is session:
                sender.session = None
                sender.send_queue.stream_closed()
                sender.notify()
                if sender.replaced_at is not None:
                    callbacks = self._advance()
        run_callbacks(callbacks)

    def report_unreachable(self, replica: Replica, failure: SmqError | None) -> None:
        """Reports the replica to the leader, in the background and not too often."""
        what = failure.message if failure is not None else "the lane broke"
        self._runtime.unreachable.report(self.view, replica.incarnation, what)

    def _fail_and_abort(self, session: Session, error: SmqError) -> None:
        """Ends the producer after a reply that allows no retry: it is fenced, or the acks do not fit what was sent."""
        self.fail(error)
        session.abort()

    # ---- from the outcome fetcher and the monitor

    def _on_outcome(self, outcome: SealOutcome, successors: tuple[Segment, ...]) -> None:
        callbacks: Callbacks = []
        fatal: ProducerFenced | None = None
        with self.lock:
            try:
                callbacks = self._on_sealed(outcome, successors)
            except ProducerFenced as error:
                fatal = error
        run_callbacks(callbacks)
        if fatal is not None:
            self.fail(fatal)

    def _check_deleted(self) -> None:
        deleted = self.view.deleted
        if deleted is not None and self.failure is None:
            self.fail(deleted)

    # ---- the layout

    def _on_layout_changed(self, snapshot: TopicSnapshot) -> None:
        callbacks: Callbacks = []
        gone: SmqError | None = None
        with self.lock:
            if snapshot.topic.uid != self._snapshot.topic.uid:
                gone = UnknownTopic(f"{self.view.name} was deleted and created again: open a new producer")
            elif snapshot.layout.version > self._snapshot.layout.version:
                self._snapshot = snapshot
                self._versions = SchemaVersions(snapshot, self._versions)
                self.send_queues.update_layout(snapshot.layout.segments)
                self._retarget(snapshot.layout.writable_segments)
                callbacks = self._advance()
                self._drop_unused()
                self._open_ahead()
                names = {s.name for s in snapshot.layout.segments}
                self.send_queues.discard_done(names | {p for s in snapshot.layout.segments for p in s.predecessors})
        run_callbacks(callbacks)
        if gone is not None:
            self.fail(gone)

    @requires_lock("lock")
    def _retarget(self, segments: Iterable[Segment]) -> None:
        """Sets where partitions should go. A segment whose queue is done is no target, even if the layout has it."""
        targets = list(segments)
        done = {n for n, send_queue in self.send_queues.send_queues.items() if send_queue.state is SendQueueState.DONE}
        fresh = RoutingTable.of(targets, len(self._targets.table))
        for segment in targets:
            if segment.name in done:
                fresh = fresh.with_replacement(segment, self._targets)
        self._targets = fresh

    @requires_lock("lock")
    def _drop_unused(self) -> None:
        """Ends sessions that were opened ahead for segments that were replaced before anything was sent to them.

        Messages wait and are in flight only for segments of the route.
        """
        used = {s.name for s in (*self._targets.segments, *self._route.segments)}
        for name, sender in list(self._senders.items()):
            if name not in used:
                sender.send_queue.state = SendQueueState.DONE
                sender.notify()
                del self._senders[name]
                self._outcomes.pop(name, None)

    @requires_lock("lock")
    def _open_ahead(self) -> None:
        """Opens sessions for the successors of segments that are being written to."""
        since = time.monotonic() - OPEN_AHEAD_SECONDS
        written = {n for n, sender in self._senders.items() if sender.acked_at > since or not sender.send_queue.idle}
        bulk = {n for n, sender in self._senders.items() if sender.is_bulk}
        for segment in self._targets.segments:
            if segment.name not in self._senders and not written.isdisjoint(segment.predecessors):
                self._senders[segment.name] = SegmentSender(
                    self,
                    self.send_queues.send_queue(segment),
                    open_ahead=True,
                    is_bulk=not bulk.isdisjoint(segment.predecessors),
                )

    @requires_lock("lock")
    def _advance(self) -> Callbacks:
        """Moves on from every segment that is being replaced and whose outcome is known or not needed."""
        callbacks: Callbacks = []
        moved = True
        while moved:
            moved = False
            wanted = {s.name for s in self._targets.segments}
            for segment in self._route.segments:
                if segment.name in wanted:
                    continue
                send_queue = self.send_queues.send_queues.get(segment.name)
                outcome = self._outcomes.get(segment.name)
                if (
                    send_queue is None
                    or send_queue.state is SendQueueState.DONE
                    or outcome is not None
                    or self._may_leave(send_queue)
                ):
                    callbacks += self._switch_to_successors(segment, outcome)
                    moved = True
                    break
                sender = self._senders[segment.name]
                if sender.replaced_at is None:
                    sender.replaced_at = time.monotonic()
                self._outcome_fetcher.start()
        return callbacks

    def _may_leave(self, send_queue: SendQueue) -> bool:
        """Whether the queue of a segment that is being replaced may move on without the outcome.

        While its session works, the queue stays: the segment still accepts messages, and its primary sends the outcome
        there when it is sealed. Moving on earlier would only mean waiting for the successors.
        """
        return not send_queue.in_flight and send_queue.state is not SendQueueState.STREAMING

    @requires_lock("lock")
    def _on_sealed(self, outcome: SealOutcome, successors: tuple[Segment, ...]) -> Callbacks:
        """Takes in the seal outcome of a segment, from its session or from any other broker. Raises ProducerFenced."""
        name = outcome.segment
        send_queue = self.send_queues.send_queues.get(name)
        if send_queue is None or send_queue.state is SendQueueState.DONE:
            return []
        # Here, because whoever applies the outcome later, as a changed layout does, could not end the producer.
        send_queue.check_fence(outcome, self.producer_id, self._epoch, self._instance)
        self._outcomes[name] = outcome
        sender = self._senders[name]
        if sender.replaced_at is None:
            sender.replaced_at = time.monotonic()
        # Without their schema the successors cannot be written to: then the next layout names the targets.
        known = bool(successors) and self._versions.has_all(successors)
        if known and any(s.name == name for s in self._targets.segments):
            self.send_queues.update_layout(successors)
            overlay = self._targets.with_overlay([s for s in successors if not s.successors])
            self._targets = self._targets.with_replacement(send_queue.segment, overlay)
            self._drop_unused()
        self._outcome_fetcher.start()  # until a broker reports the successors too
        return self._advance()

    @requires_lock("lock")
    def _switch_to_successors(self, segment: Segment, outcome: SealOutcome | None) -> Callbacks:
        """Routes this segment's partitions to their targets from now on, beginning with what its queue still holds."""
        callbacks: Callbacks = []
        unresolved: list[object] = []
        send_queue = self.send_queues.send_queues.get(segment.name)
        if send_queue is not None and send_queue.state is not SendQueueState.DONE:
            resolution = send_queue.resolve(outcome, self.producer_id, self._epoch, self._instance)
            callbacks = self._results.delivered(resolution.delivered) + self._results.unknown(resolution.unknown)
            unresolved = resolution.resend
        self._route = self._route.with_replacement(segment, self._targets)
        for sub_batch in unresolved:
            assert isinstance(sub_batch, SubBatch)
            for target, part in partition_by_segment(sub_batch, self._route):
                callbacks += self._enqueue(target, part)
        sender = self._senders.pop(segment.name, None)
        if sender is not None:
            sender.notify()
        self._outcomes.pop(segment.name, None)
        for other in self._senders.values():
            other.notify()  # a predecessor is done, so some may send now
        log.info(
            "%s is replaced by %s; %d batches are sent there",
            segment.name,
            ", ".join(s.name for s in self._route.segments if segment.name in s.predecessors) or "others",
            len(unresolved),
        )
        return callbacks

    @requires_lock("lock")
    def _enqueue(self, segment: Segment, sub_batch: SubBatch) -> Callbacks:
        """Queues a sub-batch for the segment. It fails if it has values that the segment has no column for, and also
        if that stopped the producer before."""
        if self.failure is not None:
            return sub_batch.delivery_state.failed(sub_batch.rows, self.failure)
        if sub_batch.large_value is not None and sub_batch.large_value.error is not None:
            return self._results.failed([sub_batch], sub_batch.large_value.error)
        try:
            sub_batch = reshaped(sub_batch, segment, self._versions, self.view.name)
        except ReferenceRejected as error:
            return self._results.failed([sub_batch], error)
        except SchemaMismatch as error:
            return self._halt(error) + sub_batch.delivery_state.failed(sub_batch.rows, error)
        send_queue = self.send_queues.send_queue(segment)
        send_queue.queue.append(sub_batch)
        self._monitor.start()
        sender = self._senders.get(segment.name)
        if sender is None:
            self._senders[segment.name] = SegmentSender(self, send_queue)
        else:
            sender.notify()
            if sender.replaced_at is not None:
                self._outcome_fetcher.start()  # the session may never deliver the outcome
        return []

    @requires_lock("lock")
    def _halt(self, error: SchemaMismatch) -> Callbacks:
        """Ends the producer before anything overtakes what cannot be sent. What is in flight gets its outcome."""
        log.warning("the producer of %s stops: %s", self.view.name, error.message)
        self.failure = error
        callbacks: Callbacks = []
        for send_queue in self.send_queues.send_queues.values():
            for sub_batch in send_queue.queue:
                assert isinstance(sub_batch, SubBatch)
                callbacks += sub_batch.delivery_state.failed(sub_batch.rows, error)
            send_queue.queue.clear()
        self._budget.close()
        return callbacks

    @requires_lock("lock")
    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


def _large_value_of(sub_batch: object) -> PendingLargeValue | None:
    assert isinstance(sub_batch, SubBatch)
    return sub_batch.large_value
