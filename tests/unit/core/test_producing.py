"""A producer's lanes against a model of a segment's log: nothing lost, doubled or reordered, whatever breaks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.errors import ProducerFenced, SequenceGap
from smq_core.keyspace import KeyRange
from smq_core.model import Durability, Phase, ProducerState, Replica, Segment
from smq_core.producers import BatchId, ProducerMap
from smq_core.producing import MAX_IN_FLIGHT, Lane, Lanes, LaneState


def segment(name: str, predecessors: tuple[str, ...] = ()) -> Segment:
    return Segment(
        name, 0, KeyRange(0, 8), Phase.OPEN, Durability.REPLICATED, (Replica("b", "i", "a"),), predecessors=predecessors
    )


@dataclass
class Log:
    """What a primary keeps: one row for each batch."""

    rows: list[object] = field(default_factory=list)
    producers: ProducerMap = field(default_factory=ProducerMap)

    def last(self) -> int | None:
        state = self.producers.get("p")
        return state.last_sequence if state is not None else None

    def append(self, sequence: int, piece: object) -> int | None:
        expected = self.producers.expected("p", 0)
        assert sequence <= expected, "a gap"
        if sequence < expected:
            return self.producers.get("p").first_offset(sequence)  # type: ignore[union-attr]
        self.producers.apply(BatchId("p", 0, sequence), len(self.rows))
        self.rows.append(piece)
        return len(self.rows) - 1


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_piece_is_in_the_log_once_and_in_order_whatever_breaks(data: st.DataObject) -> None:
    """Streams break at any point, with batches on the way and acks lost; in the end the segment is sealed."""
    lane, log = Lane(segment("a-0-8-0")), Log()
    delivered: dict[object, int | None] = {}
    wire: list[tuple[int, object]] = []
    acks: list[tuple[int, int]] = []
    made = 0
    for _ in range(data.draw(st.integers(1, 60))):
        step = data.draw(st.sampled_from(["queue", "open", "send", "send", "arrive", "arrive", "ack", "break"]))
        if step == "queue":
            lane.queue.append(made)
            made += 1
        elif step == "open" and lane.state is LaneState.CLOSED:
            wire, acks = [], []
            lane.opened(log.last())
        elif step == "send" and (sent := lane.to_send()):
            wire.append((sent.sequence, sent.piece))
        elif step == "arrive" and wire:
            sequence, piece = wire.pop(0)
            offset = log.append(sequence, piece)
            assert offset is not None
            acks.append((sequence, offset))
        elif step == "ack" and acks and lane.state is LaneState.STREAMING:
            sequence, offset = acks.pop(0)
            delivered |= {d.piece: d.first_offset for d in lane.acked(sequence, [offset])}
        elif step == "break":
            lane.broke()
    resolved, again = lane.resolve(log.producers.get("p"), epoch=0)
    delivered |= {d.piece: d.first_offset for d in resolved}
    assert [log.rows[offset] for offset in delivered.values() if offset is not None] == list(delivered)
    assert sorted(delivered) == log.rows, "what is in the log is delivered, once"
    assert log.rows + again == list(range(made)), "the rest goes on, in order"
    assert lane.state is LaneState.DONE and lane.idle


def test_no_more_is_in_flight_than_replicas_remember() -> None:
    lane = Lane(segment("a"))
    lane.queue.extend(range(MAX_IN_FLIGHT + 10))
    lane.opened(None)
    sent = []
    while (one := lane.to_send()) is not None:
        sent.append(one.sequence)
    assert sent == list(range(MAX_IN_FLIGHT))
    lane.acked(0, [0])
    assert lane.to_send() is not None
    assert lane.to_send() is None


def test_a_reopened_stream_sends_all_that_is_in_flight_again_first() -> None:
    lane = Lane(segment("a"))
    lane.queue.extend("xyz")
    lane.opened(None)
    assert [lane.to_send().piece for _ in range(2)] == ["x", "y"]  # type: ignore[union-attr]
    lane.broke()
    assert lane.to_send() is None
    lane.opened(0)
    assert [lane.to_send().sequence for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]


def test_a_replica_that_lost_what_it_acked_is_not_believed() -> None:
    lane = Lane(segment("a"))
    lane.queue.extend("xyz")
    lane.opened(None)
    lane.to_send()
    lane.to_send()
    lane.acked(0, [0])
    lane.broke()
    with pytest.raises(SequenceGap):
        lane.opened(None)


def test_a_producer_that_was_forgotten_while_silent_begins_anew() -> None:
    lane = Lane(segment("a"))
    lane.queue.append("x")
    lane.opened(None)
    lane.to_send()
    lane.acked(0, [0])
    lane.broke()
    lane.opened(None)
    lane.queue.append("y")
    assert lane.to_send().sequence == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("sent", [0, 2])
def test_batches_of_another_producer_with_the_same_id_and_epoch_are_noticed(sent: int) -> None:
    """Else this producer's messages would be taken for repeats, acked, and be nowhere."""
    lane = Lane(segment("a"))
    lane.queue.extend("xy")
    lane.opened(None)
    for _ in range(sent):
        lane.to_send()
    lane.broke()
    with pytest.raises(ProducerFenced):
        lane.opened(sent)
    lane.opened(sent - 1 if sent else None)


def test_what_an_older_epoch_wrote_does_not_count_as_mine() -> None:
    lane = Lane(segment("a"))
    lane.queue.append("x")
    lane.opened(None)
    lane.to_send()
    delivered, again = lane.resolve(ProducerState(0, 5, (0, 1, 2, 3, 4, 5)), epoch=1)
    assert (delivered, again) == ([], ["x"])


def test_a_newer_epoch_in_the_outcome_stops_this_producer() -> None:
    lane = Lane(segment("a"))
    lane.queue.append("x")
    with pytest.raises(ProducerFenced):
        lane.resolve(ProducerState(2, 0, (0,)), epoch=1)
    assert list(lane.queue) == ["x"]


def test_an_ack_that_comes_late_or_twice_is_passed_over() -> None:
    lane = Lane(segment("a"))
    lane.queue.extend("xy")
    lane.opened(None)
    lane.to_send()
    lane.to_send()
    assert [d.piece for d in lane.acked(0, [7])] == ["x"]
    assert lane.acked(0, [7]) == []
    assert [(d.piece, d.first_offset) for d in lane.acked(0, [7, 9])] == [("y", 9)]


def test_a_successor_waits_for_what_its_predecessors_have_in_flight() -> None:
    lanes = Lanes()
    a, b, c = segment("a"), segment("b"), segment("c", ("a", "b"))
    lanes.know([a, b, c])
    lanes.lane(a).queue.append("x")
    lanes.lane(b)
    assert not lanes.may_send(lanes.lane(c))
    lanes.lane(a).resolve(None, 0)
    assert lanes.may_send(lanes.lane(c))


def test_a_successor_waits_across_a_segment_that_never_opened() -> None:
    """The pending one was replaced before this producer wrote to it: it has no lane, but stands between."""
    lanes = Lanes()
    a, b, c = segment("a"), segment("b", ("a",)), segment("c", ("b",))
    lanes.know([a, b, c])
    lanes.lane(a).queue.append("x")
    assert not lanes.may_send(lanes.lane(c))
    lanes.drop_done({"c"})
    assert not lanes.may_send(lanes.lane(c)), "what stands between must be remembered while it matters"
    lanes.lane(a).resolve(None, 0)
    assert lanes.may_send(lanes.lane(c))
    lanes.drop_done({"c"})
    assert set(lanes.predecessors) == {"c"} and set(lanes.lanes) == {"c"}
