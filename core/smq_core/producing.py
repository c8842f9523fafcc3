"""One producer and its segments: sequences, what is in flight, and what becomes of it when a segment is sealed.

A *lane* is this producer's way into one segment. Pieces (rows of one batch that belong to one segment) wait in the
lane's queue, get the next sequence when they are sent, and are resolved by an ack or by the segment's outcome. What
the outcome does not contain goes back, in order, to be cut for the successors: so nothing is lost, doubled, or
reordered within a key. Pieces are opaque. Without IO or clock; one caller at a time.

Lane states::

    closed --stream opens--> streaming --stream breaks--> closed
       └── outcome of the segment is known ──> done   (from any state)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from smq_core.errors import ProducerFenced, SequenceGap
from smq_core.model import RECENT_BATCHES, ProducerState, Segment

MAX_IN_FLIGHT = RECENT_BATCHES


class LaneState(StrEnum):
    CLOSED = "closed"
    STREAMING = "streaming"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Sent:
    """A piece under its sequence."""

    sequence: int
    piece: object


@dataclass(frozen=True, slots=True)
class Delivered:
    """A piece is durable; its rows are at ``first_offset`` and on (None: in the log, offset no longer known)."""

    segment: str
    piece: object
    first_offset: int | None


@dataclass(slots=True)
class Lane:
    """This producer's way into one segment. The queue has what was never sent; ``in_flight`` what may be in the log."""

    segment: Segment
    state: LaneState = LaneState.CLOSED
    next_sequence: int = 0
    queue: deque[object] = field(default_factory=deque)
    in_flight: deque[Sent] = field(default_factory=deque)
    unsent: int = 0
    """How many of ``in_flight``, counted from the end, wait to be sent again on the present stream."""

    def to_send(self) -> Sent | None:
        """The next piece for the stream, or None: nothing waits, the stream is closed, or enough is in flight."""
        if self.state is not LaneState.STREAMING:
            return None
        if self.unsent:
            again = self.in_flight[len(self.in_flight) - self.unsent]
            self.unsent -= 1
            return again
        if not self.queue or len(self.in_flight) >= MAX_IN_FLIGHT:
            return None
        sent = Sent(self.next_sequence, self.queue.popleft())
        self.next_sequence += 1
        self.in_flight.append(sent)
        return sent

    def opened(self, last_sequence: int | None) -> None:
        """A stream opened; the replica told the last sequence that it holds of this producer.

        What it holds need not be sent, but is not acked yet: the replica acks repeats, so all is sent again.
        A replica that knows nothing of a producer with nothing in flight has forgotten it after a long silence: its
        sequences begin again. Raises ProducerFenced when it holds batches that this producer never sent: another one
        has the same id and epoch, and would have its messages taken for repeats. Raises SequenceGap when it knows
        less than it has acked while something is in flight: nobody can tell any more what became of that.
        """
        if last_sequence is None and not self.in_flight:
            self.next_sequence = 0
        first = self.in_flight[0].sequence if self.in_flight else self.next_sequence
        held = -1 if last_sequence is None else last_sequence
        if held >= self.next_sequence:
            raise ProducerFenced(
                f"{self.segment.name} holds batches up to {held} of another producer with this id and epoch: "
                "take a higher epoch at each start, or another id"
            )
        if held < first - 1:
            raise SequenceGap(
                f"{self.segment.name} knows this producer's batches up to {held}, but {first - 1} was acked",
                expected=held + 1,
            )
        self.state = LaneState.STREAMING
        self.unsent = len(self.in_flight)

    def acked(self, first_sequence: int, first_offsets: Sequence[int | None]) -> list[Delivered]:
        """Batches from ``first_sequence`` on are durable. Repeated and late acks are passed over."""
        delivered = []
        for sequence, offset in enumerate(first_offsets, first_sequence):
            if self.in_flight and self.in_flight[0].sequence == sequence:
                delivered.append(Delivered(self.segment.name, self.in_flight.popleft().piece, offset))
        self.unsent = min(self.unsent, len(self.in_flight))
        return delivered

    def broke(self) -> None:
        """The stream is gone; what is in flight may or may not be in the log."""
        if self.state is LaneState.STREAMING:
            self.state = LaneState.CLOSED

    def resolve(self, known: ProducerState | None, epoch: int) -> tuple[list[Delivered], list[object]]:
        """The segment's outcome: what is in the log, and, in order, what has to go to the successors.

        Raises ProducerFenced when the log ends with a newer epoch of this producer: its successors are not for this
        one. Then nothing has changed.
        """
        if known is not None and known.epoch > epoch:
            raise ProducerFenced(
                f"{self.segment.name} ended with epoch {known.epoch} of this producer, this is {epoch}: it must stop",
                epoch=known.epoch,
            )
        self.state = LaneState.DONE
        same = known if known is not None and known.epoch == epoch else None
        last = same.last_sequence if same is not None else -1
        delivered: list[Delivered] = []
        again: list[object] = []
        for sent in self.in_flight:
            if same is not None and sent.sequence <= last:
                first = same.first_offset(sent.sequence)
                delivered.append(Delivered(self.segment.name, sent.piece, first))
            else:
                again.append(sent.piece)
        again.extend(self.queue)
        self.in_flight.clear()
        self.queue.clear()
        self.unsent = 0
        return delivered, again

    @property
    def idle(self) -> bool:
        return not self.queue and not self.in_flight


@dataclass(slots=True)
class Lanes:
    """All lanes of one producer on one topic, and which of them may send.

    A lane may send only when every predecessor's lane of this producer is done: else rows of one key could overtake
    others whose fate is not known yet. Its stream may be opened before that.
    """

    epoch: int = 0
    lanes: dict[str, Lane] = field(default_factory=dict)
    predecessors: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def lane(self, segment: Segment) -> Lane:
        return self.lanes.setdefault(segment.name, Lane(segment))

    def may_send(self, lane: Lane) -> bool:
        """Whether the lane may begin to send: no unsettled lane is among its known ancestors.

        Not only predecessors: a segment that was replaced before it opened has no lane, but its predecessors may. One
        that came and went between two looks at the layout is not even known; so an older segment of some of the same
        partitions is an ancestor, whatever lies between.
        """
        own = lane.segment
        return not self._waits(own.predecessors) and all(
            self._settled(other)
            for other in self.lanes.values()
            if other.segment.number < own.number and other.segment.range.overlaps(own.range)
        )

    def know(self, segments: Iterable[Segment]) -> None:
        """The layout as it is now: remembers who came before whom, for as long as a lane may need it."""
        for segment in segments:
            self.predecessors[segment.name] = segment.predecessors

    def drop_done(self, live: set[str]) -> None:
        """Forgets lanes that are done and not among ``live`` (the layout's segments and their predecessors)."""
        for name in [n for n, lane in self.lanes.items() if lane.state is LaneState.DONE and n not in live]:
            del self.lanes[name]
        keep = live | self.lanes.keys()
        for name in [n for n, before in self.predecessors.items() if n not in keep and not self._waits(before)]:
            del self.predecessors[name]

    def _waits(self, names: Iterable[str]) -> bool:
        """Whether a lane of these segments, or of their ancestors, is not settled."""
        waiting = list(names)
        seen = set(waiting)
        while waiting:
            name = waiting.pop()
            if name in self.lanes and not self._settled(self.lanes[name]):
                return True
            further = [p for p in self.predecessors.get(name, ()) if p not in seen]
            waiting += further
            seen.update(further)
        return False

    @staticmethod
    def _settled(lane: Lane) -> bool:
        return lane.state is LaneState.DONE or lane.idle
