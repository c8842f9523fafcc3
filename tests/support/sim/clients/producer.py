"""A simulated producer: the client's machine, with streams of the simulated network in place of lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smq_core.errors import ProducerFenced, ReferenceRejected, SmqError, UnknownTopic, Unreachable
from smq_core.invariants import Message, Violation
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout, Segment
from smq_core.model.keyspace import partition_of
from smq_core.producing.producer_events import (
    Acked,
    Event,
    LayoutChanged,
    Rejected,
    Sealed,
    SessionEnded,
    SessionFailed,
    SessionOpened,
    Submitted,
    Tick,
)
from smq_core.producing.producer_instructions import (
    EndProducer,
    FailSubBatch,
    FetchOutcomes,
    ForgetSubBatch,
    Instruction,
    NotifySession,
    OpenSession,
    WakeAt,
)
from smq_core.producing.producer_machine import ProducerIdentity, ProducerMachine
from smq_core.producing.routes import Route
from smq_core.producing.segment_sender import NoBatch
from smq_core.producing.send_queue import DeliveredSubBatch, SendQueue, SendQueueState
from smq_core.replica.log_entries import BatchId
from smq_core.replica.producer_sessions import OpenedProducer
from support.sim.brokers.producer_stream import incoming
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND, Process, Steps
from support.sim.filer.chunk_chain import LAYOUT

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


class SimulatedProducer:
    """One start of a producer, with the machine of the client. ``batches`` are not sent yet.

    ``stopped``: another process fenced it. Without an epoch the process claims one. ``run`` distinguishes processes of
    one id and epoch.
    """

    def __init__(self, history: History, name: str, epoch: int | None, batches: int, run: str = "") -> None:
        self.history = history
        self.world = history.world
        self.network = history.network
        self.checker = history.checker
        self.producer = name
        self.claims = epoch is None
        self.epoch = epoch or 0
        self.name = self.instance = f"{name}.{'' if epoch is None else epoch}{run}"
        self.process = Process(self.world, self.name, self.name)
        self.process.node = self
        self.machine: ProducerMachine | None = None
        """None until the layout is known."""
        self.layout: Layout | None = None
        self.batches = batches
        self.message_keys = [f"k{i}" for i in range(history.keys)]
        self.stopped = False
        self.exited = False
        """It ended by itself, when all its messages were in the log."""
        self.closes_when_idle = False
        self.waiting: list[SimulatedSubBatch] = []
        """Batches from before the layout was known."""
        self.unknown: set[Message] = set()
        """Messages whose outcome nobody knows."""
        self._uploading = False
        self._serial = 0
        self._message = 0
        self._streams: dict[int, SimulatedStream] = {}
        self._last_reply_at: dict[int, int] = {}
        self._away_until = 0
        """No stream is open until then."""
        self._idle_until = 0
        """Nothing is sent until then, and streams are closed when nothing is in flight."""
        self.process.start(self._begin())

    def _begin(self) -> Steps:
        if self.claims and not (yield from self._claim()):
            return
        self.process.start(self._send())
        self.process.start(self._drive())

    def _claim(self) -> Steps:
        """Claims the next epoch through any broker. False if another process has a newer one."""
        while True:
            claim = self.network.call(
                self.process, self.history.any_broker(), "claim", self.producer, self.instance, None
            )
            try:
                self.epoch = yield claim
            except ProducerFenced:
                self._stop()
                return False
            except SmqError:
                yield self.world.between(50 * MS, 300 * MS)
            else:
                self.world.note(self.name, "", f"claims epoch {self.epoch} of {self.producer}")
                self.checker.producers.claimed(self.producer, self.epoch, self.instance)
                return True

    def disconnect(self, until: int) -> None:
        """Loses all streams, whatever is in flight, and opens none until then."""
        self._away_until = until
        for session in list(self._streams):
            self._end(session, None, is_planned=False)

    def fall_idle(self, until: int) -> None:
        """Sends nothing new until then. The streams are closed once nothing is in flight."""
        self._idle_until = until

    @property
    def send_queues(self) -> dict[str, SendQueue]:
        return self.machine.send_queues.send_queues if self.machine is not None else {}

    @property
    def idle(self) -> bool:
        return self.batches <= 0 and not self._uploading and not self._has_unsent()

    # ---- batches

    def _send(self) -> Steps:
        world = self.world
        while self.batches > 0 and not self.stopped:
            yield world.between(5 * MS, self.history.send_interval)
            if self._has_unsent() > 30 or world.now < self._idle_until or self.batches <= 0:
                continue
            self.batches -= 1
            self._serial += 1
            messages = tuple(self._make() for _ in range(world.between(1, 4)))
            yield from self._hand_over(SimulatedSubBatch(self._serial, messages, self._version()))

    def _hand_over(self, batch: SimulatedSubBatch) -> Steps:
        """Sends the batch, after an upload if it is published by reference or has a large value."""
        references, values = self.history.references, self.history.large_values
        self._uploading = True
        if values is not None and values.takes(batch):
            batch = yield from values.upload(self.process, batch)
        elif references is not None and references.uploads_next():
            batch = yield from references.upload(self.process, batch)
        self._uploading = False
        self._submit(batch)

    def _make(self) -> Message:
        key = self.message_keys[self.world.between(0, len(self.message_keys))]
        partition = self._partition_of(key)
        self._message += 1
        message = Message(self.name, self._message, key, partition, self.world.now)
        self.checker.sent(message)
        return message

    def _version(self) -> int:
        """The schema version of new batches: the newest one that this producer knows."""
        schemas = self.layout.schemas if self.layout is not None else ()
        return schemas[-1].version if schemas else 0

    def _partition_of(self, key: str) -> int:
        return partition_of(key.encode(), self.history.settings.partitions)

    def divide_keys(self, other: SimulatedProducer) -> None:
        """From now on the two write to different halves of the ring, if there are keys in both."""
        half = self.history.settings.partitions // 2
        halves = [
            [key for key in self.message_keys if (self._partition_of(key) < half) is low] for low in (True, False)
        ]
        if all(halves):
            self.message_keys, other.message_keys = halves

    def _has_unsent(self) -> int:
        return len(self.waiting) + sum(len(it.queue) + len(it.in_flight) for it in self.send_queues.values())

    def _submit(self, batch: SimulatedSubBatch) -> None:
        if self.machine is None:
            self.waiting.append(batch)
        else:
            self._handle(Submitted(self.split(batch, self.machine.route)))

    # ---- see smq_core.producing.topic_rows.TopicRows

    def split(self, sub_batch: Any, route: Route) -> list[tuple[Segment, SimulatedSubBatch]]:
        parts = []
        for segment in route.segments:
            runs = [range(span.start, span.stop) for span in route.spans if span.segment.name == segment.name]
            # A reference has rows that follow one another.
            for own in runs if sub_batch.upload is not None else [set().union(*runs)]:
                if (part := sub_batch.cut(own)) is not None:
                    parts.append((segment, part))
        return parts

    def reshape(self, sub_batch: Any, segment: Segment) -> SimulatedSubBatch:
        """The batch with the columns of the segment, or as it is if it has to wait for the successors."""
        if sub_batch.upload is not None and sub_batch.version < segment.schema_version:
            raise ReferenceRejected("the schema has changed")
        return sub_batch.reshaped(segment.schema_version) if sub_batch.fits(segment) else sub_batch

    def has_schemas(self, segments: Sequence[Segment]) -> bool:
        return all(segment.schema_version <= self._version() for segment in segments)

    # ---- the loop

    def _drive(self) -> Steps:
        while not self.stopped:
            if self.layout is None or self._check_errors():
                yield from self._locate()
            for session in list(self._streams):
                if self.world.now - self._last_reply_at[session] > 2 * SECOND:
                    self._end(session, None, is_planned=False)
            if self.world.now < self._idle_until and not self._has_unsent():
                self._close_streams()
            if self.closes_when_idle and self.idle:
                self._exit()
                return
            yield self.world.between(60 * MS, 140 * MS)

    def _check_errors(self) -> bool:
        """Some send queue has waiting rows and no stream."""
        return any(not it.idle and it.state is SendQueueState.CLOSED for it in self.send_queues.values())

    def _locate(self) -> Steps:
        try:
            layout = yield self.network.call(self.process, self.history.any_broker(), "locate", timeout=SECOND)
        except SmqError:
            return
        if self.layout is not None and layout.version <= self.layout.version:
            return
        self.layout = layout
        if self.machine is not None:
            self._handle(LayoutChanged(layout))
            return
        identity = ProducerIdentity(self.producer, self.epoch, self.instance)
        self.machine = ProducerMachine(identity, layout, self, timeout_seconds=float("inf"))
        waiting, self.waiting = self.waiting, []
        for batch in waiting:
            self._submit(batch)

    def _fetch_outcomes(self) -> Steps:
        assert self.machine is not None
        while (missing := self.machine.missing_outcomes(self._seconds())) is not None:
            for it in missing:
                try:
                    outcome = yield self.network.call(
                        self.process, self.history.any_broker(), "outcome", it.segment.name
                    )
                except SmqError:
                    continue
                self._sealed(None, outcome)
            yield self.world.between(50 * MS, 200 * MS)

    # ---- the machine

    def _seconds(self) -> float:
        return self.world.now / SECOND

    def _handle(self, event: Event) -> None:
        if self.machine is None or self.stopped:
            return
        for instruction in self.machine.handle(event, self._seconds()):
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case OpenSession(session, segment):
                self._open(session, segment)
            case NotifySession(session):
                self.process.after(0, lambda: self._pump(session))
            case DeliveredSubBatch():
                self.checker.acked_to(self, instruction)
            case ForgetSubBatch(SimulatedSubBatch() as sub_batch):
                self.world.note(self.name, "", f"the outcome of {[m.serial for m in sub_batch.messages]} is unknown")
                self.unknown.update(sub_batch.messages)
            case FailSubBatch(SimulatedSubBatch() as sub_batch, ReferenceRejected()):
                if self.history.references is not None:
                    self.history.references.reject(sub_batch.messages)
            case WakeAt(at):
                delay = max(0, round(at * SECOND) - self.world.now)
                self.process.after(delay, lambda: self._handle(Tick()))
            case FetchOutcomes():
                self.process.start(self._fetch_outcomes())
            case EndProducer(error):
                self.world.note(self.name, "", f"ends: {error}")
                if not isinstance(error, (ProducerFenced, UnknownTopic)):
                    self.checker.must([Violation(2, "", f"{self.name} gets {error}")])
                self._stop()

    def _stop(self) -> None:
        """Another process writes as this producer."""
        self.stopped = True
        self.batches = 0
        self._leave_streams()

    def _exit(self) -> None:
        self.exited = True
        self._leave_streams()
        self.process.kill()

    def _leave_streams(self) -> None:
        for stream in self._streams.values():
            stream.leave()
        self._streams.clear()

    # ---- sessions

    def _open(self, session: int, segment: Segment) -> None:
        if self.world.now < self._away_until:
            failed = SessionEnded(session, Unreachable("the network is down"), is_planned=False)
            self.process.after(MS, lambda: self._handle(failed))
            return
        primary = segment.primary
        stream = SimulatedStream(
            self.network,
            self.process,
            primary.address,
            "produce",
            segment.name,
            primary.incarnation,
            self.producer,
            self.epoch,
            self.instance,
        )
        stream.on_client_message = lambda message: self._on_message(session, message)
        self._streams[session] = stream
        self._last_reply_at[session] = self.world.now

    def _on_message(self, session: int, message: Any) -> None:
        if session not in self._streams:
            return
        self._last_reply_at[session] = self.world.now
        match message:
            case ("opened", OpenedProducer() as opened):
                self._handle(
                    SessionOpened(
                        session=session,
                        last_sequence=opened.last_sequence,
                        end=opened.end,
                        forgotten_upto=opened.forgotten_upto,
                    )
                )
            case ("ack", int(sequence), first):
                self._handle(Acked(session, sequence, [first]))
            case ("rejected", int(sequence)):
                self._handle(Rejected(session, sequence, ReferenceRejected("its upload is not there")))
            case ("sealed", SealOutcome() as outcome):
                self._sealed(session, outcome)
                self._end(session, None, is_planned=True)
            case SmqError():
                self._handle(SessionFailed(session, message))
                self._end(session, None, is_planned=True)
            case None:
                self._end(session, None, is_planned=False)

    def _sealed(self, session: int | None, outcome: SealOutcome) -> None:
        self.checker.record_outcome(outcome, self.name)
        self._handle(Sealed(session, outcome, self._successors_of(outcome.segment)))

    def _successors_of(self, segment: str) -> tuple[Segment, ...]:
        """What the broker knows of them, which is nothing if no leader has requested the seal from it."""
        layout = self.history.store.truth(LAYOUT)
        if not isinstance(layout, Layout) or self.world.chance(0.5):
            return ()
        return tuple(it for it in layout.segments if segment in it.predecessors)

    def _pump(self, session: int) -> None:
        """What a lane does when it has room: it takes batches until there are no more."""
        stream = self._streams.get(session)
        while stream is not None and self.machine is not None and not self.stopped:
            sent = self.machine.next_batch(session, self._seconds())
            if sent is NoBatch.WAIT:
                return
            if isinstance(sent, NoBatch):
                self._end(session, None, is_planned=True)
                return
            sub_batch = sent.sub_batch
            assert isinstance(sub_batch, SimulatedSubBatch)
            id_ = BatchId(self.producer, self.epoch, sent.sequence, self.instance)
            stream.up((incoming(sub_batch, id_), sent.rejections))

    def _end(self, session: int, failure: SmqError | None, *, is_planned: bool) -> None:
        stream = self._streams.pop(session, None)
        if stream is not None:
            stream.leave()
            self._handle(SessionEnded(session, failure, is_planned))

    def _close_streams(self) -> None:
        for session in list(self._streams):
            self._end(session, None, is_planned=True)
