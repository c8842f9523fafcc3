"""One producer's send queues: sequences, sub-batches in flight, and their resolution when a segment is sealed.

A producer has one send queue for each segment. A sub-batch (the rows of one batch that belong to one segment) waits in
the queue, gets the next sequence when it is sent, and is resolved by an ack or by the segment's outcome. Sub-batches
that the outcome does not contain are returned in order, to be partitioned again for the successors. So no message is
lost, duplicated or reordered within a key.

There is no IO or clock, and only one caller at a time may use a queue.

States::

    closed --stream opens--> streaming --stream breaks--> closed
       └── the segment's outcome is known ──> done   (from any state)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from smq_core.errors import ProducerFenced, SequenceGap
from smq_core.model.chunk_info import RECENT_BATCHES, ProducerState, SealOutcome, are_different_instances
from smq_core.model.entities import Segment

MAX_IN_FLIGHT = RECENT_BATCHES


class SendQueueState(StrEnum):
    CLOSED = "closed"
    STREAMING = "streaming"
    DONE = "done"


class QueuedSubBatch(Protocol):
    """What a producer's machine needs of the rows of one batch that belong to one segment."""

    @property
    def created_at(self) -> float:
        """When the program handed them over, in seconds."""

    @property
    def is_large(self) -> bool:
        """Whether they go on the bulk lane."""

    @property
    def large_value(self) -> object | None:
        """The upload without which the batch cannot be sent."""

    def fits(self, segment: Segment) -> bool:
        """Whether they can be sent to that segment now. What does not fit waits for the successors or its upload."""


@dataclass(frozen=True, slots=True)
class SentSubBatch:
    """A sub-batch with its sequence. ``rejections`` is how many the producer had seen on the stream when it sent it."""

    sequence: int
    sub_batch: QueuedSubBatch
    rejections: int = 0


@dataclass(frozen=True, slots=True)
class DeliveredSubBatch:
    """A durable sub-batch. Its rows begin at ``first_offset``; None if the offset is no longer known."""

    segment: str
    sub_batch: QueuedSubBatch
    first_offset: int | None


@dataclass(slots=True)
class Resolution:
    """What became of a queue's sub-batches when its segment was sealed.

    ``resend`` has, in order, those that the successors must get. Nobody knows the outcome of those in ``unknown``,
    because the segment may have forgotten this producer after it had appended them.
    """

    delivered: list[DeliveredSubBatch] = field(default_factory=list)
    resend: list[QueuedSubBatch] = field(default_factory=list)
    unknown: list[QueuedSubBatch] = field(default_factory=list)


@dataclass(slots=True)
class SendQueue:
    """The sub-batches for one segment. ``queue`` was never sent; ``in_flight`` may be in the log."""

    segment: Segment
    state: SendQueueState = SendQueueState.CLOSED
    next_sequence: int = 0
    queue: deque[QueuedSubBatch] = field(default_factory=deque)
    in_flight: deque[SentSubBatch] = field(default_factory=deque)
    to_resend: int = 0
    """How many of ``in_flight``, counted from the end, have to be sent again on the current stream."""
    rejections: int = 0
    """How many sub-batches were rejected on the current stream."""
    log_start: int = 0
    """Batches in flight that are in the log begin at this offset or above."""

    def next_to_send(self, fits: Callable[[QueuedSubBatch], bool] = lambda _: True) -> SentSubBatch | None:
        """The next sub-batch to send. None if nothing waits, the stream is closed, or enough is in flight.

        ``fits`` says whether the segment takes a sub-batch that was not sent yet. One that has a newer schema than the
        segment does not fit: it waits for the successors, and so does everything behind it.
        """
        if self.state is not SendQueueState.STREAMING:
            return None
        if self.to_resend:
            resend = self.in_flight[len(self.in_flight) - self.to_resend]
            self.to_resend -= 1
            return replace(resend, rejections=self.rejections)
        if not self.queue or len(self.in_flight) >= MAX_IN_FLIGHT or not fits(self.queue[0]):
            return None
        sent = SentSubBatch(self.next_sequence, self.queue.popleft(), self.rejections)
        self.next_sequence += 1
        self.in_flight.append(sent)
        return sent

    def opened(self, last_sequence: int | None, *, end: int = 0, forgotten_upto: int = 0) -> list[QueuedSubBatch]:
        """A stream opened, and the replica reported the last sequence that it has of this producer.

        Everything in flight is sent again, even if the replica has it, because the replica acks repeats. If it has no
        state of this producer, sequences restart at 0. Returns the sub-batches whose outcome nobody knows, because
        the replica may have forgotten this producer after it had appended them; they are no longer in flight.

        ``end`` is the log's end, and ``forgotten_upto`` is above the last batch of every producer that was forgotten.

        Raises ProducerFenced if the replica has batches that this producer never sent: another producer uses the same
        id and epoch, so this one's messages would be taken for repeats. Raises SequenceGap if the replica has less than
        it acked, although it has not forgotten this producer.
        """
        if self.state is SendQueueState.DONE:
            return []  # the segment's outcome came before the stream opened
        held = -1 if last_sequence is None else last_sequence
        if held >= self.next_sequence:
            raise ProducerFenced(
                f"{self.segment.name} has batches up to {held} of another producer with this id and epoch; "
                "start this one again without epoch=, or give it another id"
            )
        was_forgotten = held < 0 and forgotten_upto >= self.log_start
        first = self.in_flight[0].sequence if self.in_flight else self.next_sequence
        if held < first - 1 and not was_forgotten:
            raise SequenceGap(
                f"{self.segment.name} has this producer's batches up to {held}, but {first - 1} was acked",
                expected=held + 1,
            )
        unknown: list[QueuedSubBatch] = []
        if held < 0:
            if self.in_flight and forgotten_upto > self.log_start:
                unknown = [sent.sub_batch for sent in self.in_flight]
                self.in_flight.clear()
            self.in_flight = deque(SentSubBatch(n, sent.sub_batch) for n, sent in enumerate(self.in_flight))
            self.next_sequence = len(self.in_flight)
            self.log_start = end
        self.state = SendQueueState.STREAMING
        self.to_resend = len(self.in_flight)
        self.rejections = 0
        return unknown

    def rejected(self, sequence: int) -> QueuedSubBatch | None:
        """The primary rejected this batch on the current stream. Returns its sub-batch, which will never be in the log.

        The sequence stays free. The primary drops the batches that were sent after it, until it gets one whose
        ``rejections`` counts this rejection. So they move up by one sequence, and are sent again. None, and nothing
        changes, if the batch is not in flight.
        """
        at = next((at for at, sent in enumerate(self.in_flight) if sent.sequence == sequence), None)
        if at is None or self.state is not SendQueueState.STREAMING:
            return None
        sent = list(self.in_flight)
        later = [SentSubBatch(it.sequence - 1, it.sub_batch) for it in sent[at + 1 :]]
        self.in_flight = deque([*sent[:at], *later])
        self.next_sequence -= 1
        self.to_resend = len(later)
        self.rejections += 1
        return sent[at].sub_batch

    def acked(self, first_sequence: int, first_offsets: Sequence[int | None]) -> list[DeliveredSubBatch]:
        """Batches from ``first_sequence`` on are durable. Repeated and late acks are ignored."""
        delivered = []
        for sequence, offset in enumerate(first_offsets, first_sequence):
            if self.in_flight and self.in_flight[0].sequence == sequence:
                delivered.append(DeliveredSubBatch(self.segment.name, self.in_flight.popleft().sub_batch, offset))
                if offset is not None:
                    self.log_start = max(self.log_start, offset + 1)
        self.to_resend = min(self.to_resend, len(self.in_flight))
        return delivered

    def stream_closed(self) -> None:
        """The stream broke; batches in flight may or may not be in the log."""
        if self.state is SendQueueState.STREAMING:
            self.state = SendQueueState.CLOSED

    def check_fence(self, outcome: SealOutcome, producer: str, epoch: int, instance: str = "") -> ProducerState | None:
        """The state of this producer at the segment's end.

        Raises ProducerFenced if the log ends with a newer epoch or another instance of this producer.
        """
        known = outcome.producers.get(producer)
        if known is not None and known.epoch > epoch:
            raise ProducerFenced(
                f"{self.segment.name} ended with epoch {known.epoch} of this producer; "
                f"this process has epoch {epoch} and must stop",
                epoch=known.epoch,
            )
        if known is not None and known.epoch == epoch and are_different_instances(known.instance, instance):
            raise ProducerFenced(
                f"another process wrote to {self.segment.name} with this producer's id and epoch {epoch}. Give each "
                "process its own producer_id; to replace a process, start the new one without epoch="
            )
        return known

    def resolve(self, outcome: SealOutcome | None, producer: str, epoch: int, instance: str = "") -> Resolution:
        """Applies the segment's outcome; None if it is not needed, because nothing is in flight.

        Raises ProducerFenced, and changes nothing, as ``check_fence``.
        """
        known = self.check_fence(outcome, producer, epoch, instance) if outcome is not None else None
        self.state = SendQueueState.DONE
        same = known if known is not None and known.epoch == epoch else None
        last = same.last_sequence if same is not None and not self._is_outdated(same) else -1
        forgotten = same is None and outcome is not None and outcome.forgotten_upto > self.log_start
        resolution = Resolution()
        for sent in self.in_flight:
            if same is not None and sent.sequence <= last:
                first = same.first_offset(sent.sequence)
                resolution.delivered.append(DeliveredSubBatch(self.segment.name, sent.sub_batch, first))
            else:
                (resolution.unknown if forgotten else resolution.resend).append(sent.sub_batch)
        resolution.resend.extend(self.queue)
        self.in_flight.clear()
        self.queue.clear()
        self.to_resend = 0
        return resolution

    def _is_outdated(self, known: ProducerState) -> bool:
        """The log ends with this state, which is older than all batches in flight: none of them is in the log.

        Its sequences may have another meaning. The primary forgot this producer, sequences restarted at 0, and the
        segment was sealed by a replica that has no entry that says so.
        """
        return bool(known.recent) and known.recent[-1] < self.log_start

    @property
    def idle(self) -> bool:
        return not self.queue and not self.in_flight

    @property
    def has_waiting(self) -> bool:
        """Whether anything was not sent yet on the present stream."""
        return bool(self.queue or self.to_resend)


@dataclass(slots=True)
class SendQueues:
    """All send queues of one producer on one topic, and which of them may send.

    A queue may send only when this producer's queues of all predecessors are done. Otherwise rows of a key could
    overtake earlier rows whose outcome is still unknown. The stream may be opened before that.
    """

    send_queues: dict[str, SendQueue] = field(default_factory=dict)
    predecessors: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def send_queue(self, segment: Segment) -> SendQueue:
        return self.send_queues.setdefault(segment.name, SendQueue(segment))

    def may_send(self, send_queue: SendQueue) -> bool:
        """Whether the queue may begin to send: all queues among its ancestors are done or idle.

        Checking direct predecessors is not enough: a segment that was replaced before it opened has no queue, but its
        predecessors may have one. A segment that came and went between two reads of the layout is not even known, so
        every older segment with overlapping partitions counts as an ancestor.
        """
        own = send_queue.segment
        return not self._has_undecided(own.predecessors) and all(
            self._is_decided(other)
            for other in self.send_queues.values()
            if other.segment.number < own.number and other.segment.range.overlaps(own.range)
        )

    def update_layout(self, segments: Iterable[Segment]) -> None:
        """Records the predecessors of the current layout's segments, for as long as a queue may need them."""
        for segment in segments:
            self.predecessors[segment.name] = segment.predecessors

    def discard_done(self, live: set[str]) -> None:
        """Drops queues that are done and not in ``live`` (the layout's segments and their predecessors)."""
        for name in [
            n for n, send_queue in self.send_queues.items() if send_queue.state is SendQueueState.DONE and n not in live
        ]:
            del self.send_queues[name]
        keep = live | self.send_queues.keys()
        for name in [n for n, before in self.predecessors.items() if n not in keep and not self._has_undecided(before)]:
            del self.predecessors[name]

    def _has_undecided(self, names: Iterable[str]) -> bool:
        """Whether a queue of these segments, or of their ancestors, is neither done nor idle."""
        waiting = list(names)
        seen = set(waiting)
        while waiting:
            name = waiting.pop()
            if name in self.send_queues and not self._is_decided(self.send_queues[name]):
                return True
            further = [p for p in self.predecessors.get(name, ()) if p not in seen]
            waiting += further
            seen.update(further)
        return False

    @staticmethod
    def _is_decided(send_queue: SendQueue) -> bool:
        return send_queue.state is SendQueueState.DONE or send_queue.idle
