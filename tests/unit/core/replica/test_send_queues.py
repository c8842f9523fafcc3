"""A producer's send queues against a model of a segment's log: nothing is lost, duplicated or reordered."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.errors import NotOpenYet, ProducerFenced, SequenceGap, Unavailable
from smq_core.model.chunk_info import ProducerState, SealOutcome
from smq_core.model.entities import Durability, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.producing.send_queue import MAX_IN_FLIGHT, Resolution, SendQueue, SendQueues, SendQueueState
from smq_core.replica.log_entries import BatchId, IncomingBatch, ProducerLimits, ReplicaConfig
from smq_core.replica.segment_replica import SegmentReplica


def segment(name: str, predecessors: tuple[str, ...] = ()) -> Segment:
    return Segment(
        name=name,
        number=0,
        range=KeyRange(0, 8),
        phase=Phase.OPEN,
        durability=Durability.REPLICATED,
        replicas=(Replica("b", "i", "a"),),
        predecessors=predecessors,
    )


@dataclass
class Stream:
    """One stream of the producer. ``sent`` is on the way; the primary reads on until it notices that it is closed."""

    number: int
    sent: deque[tuple[int, object]] = field(default_factory=deque)
    acks: deque[tuple[int, int | None]] = field(default_factory=deque)
    is_open_there: bool = True


@dataclass
class ModelledProducer:
    """A producer with one send queue, and the primary of its segment, which forgets producers without a stream."""

    send_queue: SendQueue
    primary: SegmentReplica
    streams: list[Stream] = field(default_factory=list)
    made: int = 0
    others: int = 0
    delivered: dict[object, int | None] = field(default_factory=dict)
    unknown: list[object] = field(default_factory=list)

    def perform(self, step: str, which: int) -> None:
        stream = self.streams[which % len(self.streams)] if self.streams else None
        if step == "queue":
            self.send_queue.queue.append(self.made)
            self.made += 1
        elif step == "predecessor sealed":
            self.primary.predecessor_sealed(SealOutcome(segment="x", end=0))
        elif step == "open" and self.send_queue.state is SendQueueState.CLOSED:
            self.streams.append(Stream(len(self.streams)))
            opened = self.primary.open_producer(self.streams[-1].number, "p", 0, "i")
            forgotten = {"end": opened.end, "forgotten_upto": opened.forgotten_upto}
            self.unknown += self.send_queue.opened(opened.last_sequence, **forgotten)
        elif step == "open unnoticed" and self.send_queue.state is SendQueueState.CLOSED:
            self.streams.append(Stream(len(self.streams)))
            self.primary.open_producer(self.streams[-1].number, "p", 0, "i")
        elif step == "send" and (sent := self.send_queue.next_to_send()):
            self.streams[-1].sent.append((sent.sequence, sent.sub_batch))
        elif step == "arrive" and stream is not None and stream.is_open_there and stream.sent:
            self.arrive(stream)
        elif step == "ack" and self.streams and self.send_queue.state is SendQueueState.STREAMING:
            self.take_acks()
        elif step == "break":
            self.send_queue.stream_closed()
        elif step == "close there" and stream is not None:
            self.close_there([stream] if which == 0 else self.streams)
        elif step == "another producer":
            self.append_of_another()

    def close_there(self, streams: list[Stream]) -> None:
        """The primary notices that these streams broke."""
        for stream in streams:
            if not self.is_current(stream):
                self.primary.close_producer(stream.number, "p")
                stream.is_open_there = False

    def is_current(self, stream: Stream) -> bool:
        return stream is self.streams[-1] and self.send_queue.state is SendQueueState.STREAMING

    def arrive(self, stream: Stream) -> None:
        sequence, sub_batch = stream.sent[0]
        batch = IncomingBatch(
            id=BatchId("p", 0, sequence, "i"), rows=1, nbytes=10, partition_min=0, partition_max=7, payload=sub_batch
        )
        try:
            self.primary.append(stream.number, batch, now=0)
        except NotOpenYet:
            return
        except Unavailable:
            assert not self.is_current(stream), "only streams that were replaced are refused"
        stream.sent.popleft()
        self.collect_acks()

    def collect_acks(self) -> None:
        for ack in self.primary.take_acks():
            if ack.id.producer == "p":
                self.streams[ack.stream].acks.append((ack.id.sequence, ack.first_offset))  # type: ignore[index]

    def take_acks(self) -> None:
        while self.streams[-1].acks:
            sequence, offset = self.streams[-1].acks.popleft()
            found = self.send_queue.acked(sequence, [offset])
            self.delivered |= {one.sub_batch: one.first_offset for one in found}

    def append_of_another(self) -> None:
        """Each time a new producer: those before it, and this one, are forgotten if they have no stream."""
        name = f"q{self.others}"
        self.others += 1
        try:
            self.primary.append(
                "other",
                IncomingBatch(
                    id=BatchId(name, 0, 0, "i"), rows=1, nbytes=10, partition_min=0, partition_max=7, payload=None
                ),
                now=0,
            )
        except NotOpenYet:
            return
        self.primary.open_producer("other", name, 0, "i")
        self.primary.close_producer("other", name)
        self.collect_acks()


STEPS = ["queue", "queue", "open", "open", "send", "send", "send", "arrive", "arrive", "arrive", "ack", "break"]
STEPS += ["break", "open unnoticed", "close there", "another producer", "another producer", "predecessor sealed"]


@pytest.mark.parametrize("max_producers", [1, 3, 100])
@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 1 << 60), length=st.integers(1, 200), waits=st.booleans())
def test_every_batch_is_in_the_log_once_and_in_order_whatever_breaks(
    max_producers: int, seed: int, length: int, waits: bool
) -> None:
    """Streams break at any point, with batches on the way, late, and acks lost; in the end the segment is sealed.

    The producer is forgotten whenever the primary has closed its streams. Then the outcome of what is in flight may be
    unknown, but no batch is doubled, none is acked that is not in the log, and the producer always goes on.
    """
    config = ReplicaConfig(
        segment="a-0-8-0",
        range=KeyRange(0, 8),
        incarnation="p",
        replicas=("p",),
        durability=Durability.REPLICATED,
        predecessors=("x",) if waits else (),
        producer_limits=ProducerLimits(max_producers),
    )
    it = ModelledProducer(SendQueue(segment("a-0-8-0")), SegmentReplica(config))
    random = Random(seed)
    for _ in range(length):
        it.perform(random.choice(STEPS), random.randrange(4))
    primary = it.primary
    log = {entry.first: entry.batch.payload for entry in primary.tail if entry.batch.id.producer == "p"}
    producers = primary.sessions.producers
    outcome = SealOutcome(
        segment="a-0-8-0", end=primary.end, producers=producers.snapshot(), forgotten_upto=producers.forgotten_upto
    )
    resolution = it.send_queue.resolve(outcome, "p", 0, "i")
    delivered = it.delivered | {d.sub_batch: d.first_offset for d in resolution.delivered}
    unknown = [*it.unknown, *resolution.unknown]
    assert all(log[offset] == sub_batch for sub_batch, offset in delivered.items() if offset is not None)
    assert list(log.values()) == sorted(delivered.keys() | (set(log.values()) & set(unknown))), "once and in order"
    assert sorted([*delivered, *unknown, *resolution.resend]) == list(range(it.made)), "each has one outcome"
    assert resolution.resend == sorted(resolution.resend), "the rest continues, in order"
    assert not unknown or producers.forgotten_upto > 0
    assert it.send_queue.state is SendQueueState.DONE and it.send_queue.idle


def test_no_more_is_in_flight_than_replicas_remember() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.extend(range(MAX_IN_FLIGHT + 10))
    send_queue.opened(None)
    sent = []
    while (one := send_queue.next_to_send()) is not None:
        sent.append(one.sequence)
    assert sent == list(range(MAX_IN_FLIGHT))
    send_queue.acked(0, [0])
    assert send_queue.next_to_send() is not None
    assert send_queue.next_to_send() is None


def test_a_reopened_stream_sends_all_that_is_in_flight_again_first() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.extend("xyz")
    send_queue.opened(None)
    assert [send_queue.next_to_send().sub_batch for _ in range(2)] == ["x", "y"]  # type: ignore[union-attr]
    send_queue.stream_closed()
    assert send_queue.next_to_send() is None
    send_queue.opened(0)
    assert [send_queue.next_to_send().sequence for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]


def test_a_replica_that_lost_what_it_acked_is_not_believed() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.extend("xyz")
    send_queue.opened(None)
    send_queue.next_to_send()
    send_queue.next_to_send()
    send_queue.acked(0, [0])
    send_queue.stream_closed()
    with pytest.raises(SequenceGap):
        send_queue.opened(None)


def ended_with(state: ProducerState | None, forgotten_upto: int = 0) -> SealOutcome:
    return SealOutcome(
        segment="a", end=10, producers={} if state is None else {"p": state}, forgotten_upto=forgotten_upto
    )


def test_a_producer_that_was_forgotten_while_idle_starts_at_sequence_0() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.append("x")
    send_queue.opened(None)
    send_queue.next_to_send()
    send_queue.acked(0, [0])
    send_queue.stream_closed()
    assert send_queue.opened(None, end=7, forgotten_upto=1) == []
    send_queue.queue.append("y")
    assert send_queue.next_to_send().sequence == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("sent", [0, 2])
def test_batches_of_another_producer_with_the_same_id_and_epoch_are_noticed(sent: int) -> None:
    """Else this producer's messages would be taken for repeats, acked, and be nowhere."""
    send_queue = SendQueue(segment("a"))
    send_queue.queue.extend("xy")
    send_queue.opened(None)
    for _ in range(sent):
        send_queue.next_to_send()
    send_queue.stream_closed()
    with pytest.raises(ProducerFenced):
        send_queue.opened(sent)
    send_queue.opened(sent - 1 if sent else None)


def test_what_an_older_epoch_wrote_does_not_count_as_mine() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.append("x")
    send_queue.opened(None)
    send_queue.next_to_send()
    resolution = send_queue.resolve(
        ended_with(ProducerState(epoch=0, last_sequence=5, recent=(0, 1, 2, 3, 4, 5))), "p", 1
    )
    assert resolution == Resolution(resend=["x"])


def test_what_an_older_epoch_wrote_after_this_one_was_forgotten_resolves_nothing() -> None:
    """The older epoch is fenced only as long as the newer one is known."""
    send_queue = SendQueue(segment("a"))
    send_queue.queue.append("x")
    send_queue.opened(None)
    send_queue.next_to_send()
    resolution = send_queue.resolve(
        ended_with(ProducerState(epoch=0, last_sequence=0, recent=(3,)), forgotten_upto=1), "p", 1
    )
    assert resolution == Resolution(unknown=["x"])


def test_batches_that_cannot_have_been_forgotten_get_new_sequences() -> None:
    """The replica forgot this producer, but only with batches that were acked: those in flight would be above."""
    send_queue = SendQueue(segment("a"))
    send_queue.queue.extend("wxyz")
    send_queue.opened(None)
    for _ in range(3):
        send_queue.next_to_send()
    send_queue.acked(0, [4])
    send_queue.stream_closed()
    assert send_queue.opened(None, end=9, forgotten_upto=5) == []
    sent = [send_queue.next_to_send() for _ in range(3)]
    assert [(one.sequence, one.sub_batch) for one in sent if one] == [(0, "x"), (1, "y"), (2, "z")]


def test_batches_that_may_have_been_forgotten_are_unknown_and_the_next_one_is_number_0() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.extend("wxyz")
    send_queue.opened(None)
    for _ in range(3):
        send_queue.next_to_send()
    send_queue.acked(0, [4])
    send_queue.stream_closed()
    assert send_queue.opened(None, end=9, forgotten_upto=6) == ["x", "y"]
    sent = send_queue.next_to_send()
    assert sent is not None and (sent.sequence, sent.sub_batch) == (0, "z")
    assert send_queue.next_to_send() is None


def test_what_was_forgotten_before_the_stream_opened_makes_nothing_unknown() -> None:
    """All that is in flight was sent when the log had reached 9, so it was not forgotten with what lay below."""
    send_queue = SendQueue(segment("a"))
    send_queue.queue.append("x")
    send_queue.opened(None, end=9, forgotten_upto=9)
    send_queue.next_to_send()
    assert send_queue.resolve(ended_with(None, forgotten_upto=9), "p", 0) == Resolution(resend=["x"])


def test_another_instance_in_the_outcome_stops_this_producer() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.append("x")
    outcome = ended_with(ProducerState(epoch=0, last_sequence=0, recent=(0,), instance="i"))
    with pytest.raises(ProducerFenced):
        send_queue.resolve(outcome, "p", 0, "j")
    assert list(send_queue.queue) == ["x"]
    assert send_queue.resolve(outcome, "p", 0, "i") == Resolution(resend=["x"])


def test_a_newer_epoch_in_the_outcome_stops_this_producer() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.append("x")
    with pytest.raises(ProducerFenced):
        send_queue.resolve(ended_with(ProducerState(epoch=2, last_sequence=0, recent=(0,))), "p", 1)
    assert list(send_queue.queue) == ["x"]


def test_an_ack_that_comes_late_or_twice_is_passed_over() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.extend("xy")
    send_queue.opened(None)
    send_queue.next_to_send()
    send_queue.next_to_send()
    assert [d.sub_batch for d in send_queue.acked(0, [7])] == ["x"]
    assert send_queue.acked(0, [7]) == []
    assert [(d.sub_batch, d.first_offset) for d in send_queue.acked(0, [7, 9])] == [("y", 9)]


def test_a_successor_waits_for_what_its_predecessors_have_in_flight() -> None:
    send_queues = SendQueues()
    a, b, c = segment("a"), segment("b"), segment("c", ("a", "b"))
    send_queues.update_layout([a, b, c])
    send_queues.send_queue(a).queue.append("x")
    send_queues.send_queue(b)
    assert not send_queues.may_send(send_queues.send_queue(c))
    send_queues.send_queue(a).resolve(None, "p", 0)
    assert send_queues.may_send(send_queues.send_queue(c))


def test_a_successor_waits_across_a_segment_that_never_opened() -> None:
    """The pending segment was replaced before this producer wrote to it, so it is an ancestor without a send queue."""
    send_queues = SendQueues()
    a, b, c = segment("a"), segment("b", ("a",)), segment("c", ("b",))
    send_queues.update_layout([a, b, c])
    send_queues.send_queue(a).queue.append("x")
    assert not send_queues.may_send(send_queues.send_queue(c))
    send_queues.discard_done({"c"})
    assert not send_queues.may_send(send_queues.send_queue(c)), (
        "what stands between must be remembered while it matters"
    )
    send_queues.send_queue(a).resolve(None, "p", 0)
    assert send_queues.may_send(send_queues.send_queue(c))
    send_queues.discard_done({"c"})
    assert set(send_queues.predecessors) == {"c"} and set(send_queues.send_queues) == {"c"}
