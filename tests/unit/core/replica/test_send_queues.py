"""A producer's send queues against a model of a segment's log: nothing is lost, duplicated or reordered."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.errors import ProducerFenced, SequenceGap
from smq_core.model.entities import Durability, Phase, ProducerState, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.producing.send_queue import MAX_IN_FLIGHT, SendQueue, SendQueues, SendQueueState
from smq_core.replica.producer_map import BatchId, ProducerMap


def segment(name: str, predecessors: tuple[str, ...] = ()) -> Segment:
    return Segment(
        name, 0, KeyRange(0, 8), Phase.OPEN, Durability.REPLICATED, (Replica("b", "i", "a"),), predecessors=predecessors
    )


@dataclass
class ModelLog:
    """What a primary keeps: one row for each batch."""

    rows: list[object] = field(default_factory=list)
    producers: ProducerMap = field(default_factory=ProducerMap)

    def last(self) -> int | None:
        state = self.producers.get("p")
        return state.last_sequence if state is not None else None

    def append(self, sequence: int, sub_batch: object) -> int | None:
        expected = self.producers.expected("p", 0)
        assert sequence <= expected, "a gap"
        if sequence < expected:
            return self.producers.get("p").first_offset(sequence)  # type: ignore[union-attr]
        self.producers.apply(BatchId("p", 0, sequence), len(self.rows))
        self.rows.append(sub_batch)
        return len(self.rows) - 1


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_batch_is_in_the_log_once_and_in_order_whatever_breaks(data: st.DataObject) -> None:
    """Streams break at any point, with batches on the way and acks lost; in the end the segment is sealed."""
    send_queue, log = SendQueue(segment("a-0-8-0")), ModelLog()
    delivered: dict[object, int | None] = {}
    wire: list[tuple[int, object]] = []
    acks: list[tuple[int, int]] = []
    made = 0
    for _ in range(data.draw(st.integers(1, 60))):
        step = data.draw(st.sampled_from(["queue", "open", "send", "send", "arrive", "arrive", "ack", "break"]))
        if step == "queue":
            send_queue.queue.append(made)
            made += 1
        elif step == "open" and send_queue.state is SendQueueState.CLOSED:
            wire, acks = [], []
            send_queue.opened(log.last())
        elif step == "send" and (sent := send_queue.next_to_send()):
            wire.append((sent.sequence, sent.sub_batch))
        elif step == "arrive" and wire:
            sequence, sub_batch = wire.pop(0)
            offset = log.append(sequence, sub_batch)
            assert offset is not None
            acks.append((sequence, offset))
        elif step == "ack" and acks and send_queue.state is SendQueueState.STREAMING:
            sequence, offset = acks.pop(0)
            delivered |= {d.sub_batch: d.first_offset for d in send_queue.acked(sequence, [offset])}
        elif step == "break":
            send_queue.stream_closed()
    resolved, again = send_queue.resolve(log.producers.get("p"), epoch=0)
    delivered |= {d.sub_batch: d.first_offset for d in resolved}
    assert [log.rows[offset] for offset in delivered.values() if offset is not None] == list(delivered)
    assert sorted(delivered) == log.rows, "what is in the log is delivered, once"
    assert log.rows + again == list(range(made)), "the rest continues, in order"
    assert send_queue.state is SendQueueState.DONE and send_queue.idle


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


def test_a_producer_that_was_forgotten_while_idle_starts_at_sequence_0() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.append("x")
    send_queue.opened(None)
    send_queue.next_to_send()
    send_queue.acked(0, [0])
    send_queue.stream_closed()
    send_queue.opened(None)
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
    delivered, again = send_queue.resolve(ProducerState(0, 5, (0, 1, 2, 3, 4, 5)), epoch=1)
    assert (delivered, again) == ([], ["x"])


def test_a_newer_epoch_in_the_outcome_stops_this_producer() -> None:
    send_queue = SendQueue(segment("a"))
    send_queue.queue.append("x")
    with pytest.raises(ProducerFenced):
        send_queue.resolve(ProducerState(2, 0, (0,)), epoch=1)
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
    send_queues.send_queue(a).resolve(None, 0)
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
    send_queues.send_queue(a).resolve(None, 0)
    assert send_queues.may_send(send_queues.send_queue(c))
    send_queues.discard_done({"c"})
    assert set(send_queues.predecessors) == {"c"} and set(send_queues.send_queues) == {"c"}
