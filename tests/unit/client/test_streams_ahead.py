"""Streams to successors are opened while their predecessors still take what is written; nothing is sent too early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import smq.lanes
from smq.cutting import Piece
from smq.delivery import Fate
from smq.engine import Engine
from smq.keys import Keyless
from smq.outcomes import OutcomeAsker
from smq.tables import Shaper
from smq.view import Known
from smq_core import layout as layouts
from smq_core.keyspace import KeyRange
from smq_core.layout import SealPlan, Successor
from smq_core.model import Durability, Layout, Reason, Replica, SealOutcome, Topic, TopicSpec
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_to_pb
from support.waiting import eventually

PARTITIONS = 8
TOPIC = Topic("default/t", "uid", TopicSpec(partitions=PARTITIONS))


class View:
    """Tells what the test says."""

    name, network, deleted = "default/t", None, None

    def __init__(self, layout: Layout) -> None:
        self.known = Known(TOPIC, layout)
        self.tell: Callable[[Known], None] = lambda _: None

    def listen(self, listener: Callable[[Known], None]) -> None:
        self.tell = listener

    def unlisten(self, _: object) -> None: ...

    def hint(self, *_: object) -> None: ...

    def change(self, layout: Layout) -> None:
        self.known = Known(TOPIC, layout)
        self.tell(self.known)


class Stream:
    """Connects at once; the test gives the primary's replies."""

    made: list[Stream]

    def __init__(self, segment: Any, *rest: Any) -> None:
        self.segment = segment
        self.on_reply, self.on_end = rest[-2:]
        self.sent: list[int] = []
        Stream.made.append(self)

    def open(self) -> None: ...

    def write(self, sequence: int, _: object) -> None:
        self.sent.append(sequence)

    def reply(self, **what: Any) -> None:
        self.on_reply(self, pb.ProducerReply(**what))

    def silent(self, _: float) -> bool:
        return False

    def abort(self) -> None: ...

    def end(self, graceful: bool) -> None: ...


def successor(start: int, stop: int) -> Successor:
    return Successor(KeyRange(start, stop), (Replica("b", "b.1", "127.0.0.1:1"),), Durability.STORED)


FIRST = layouts.create("default/t", "uid", PARTITIONS, [successor(0, PARTITIONS)], now=0, writer="1")


def planned(layout: Layout, names: list[str], *parts: Successor) -> Layout:
    return layouts.plan(layout, [SealPlan(tuple(names), Reason.MANUAL, parts)], now=0, writer="2")


SPLIT = planned(FIRST, ["t-0-8-0"], successor(0, 4), successor(4, 8))


class Bench:
    def __init__(self) -> None:
        self.shaper = Shaper(TOPIC)
        self.view = View(FIRST)
        self.engine = Engine(self.view, self.shaper, "p", 0, 60.0, 1 << 20)  # type: ignore[arg-type]
        self._keyless = Keyless(PARTITIONS, 0)

    def send(self) -> Fate:
        """One row into each half of the ring."""
        rows = pa.record_batch({"key": pa.array([b"a", b"b", b"c", b"d"]), "value": pa.array([b"x"] * 4)})
        shaped, hashed = self.shaper.check(rows, None)
        batch, places = self.shaper.wire(shaped, hashed, 0, self._keyless)
        assert (places < 4).any() and (places >= 4).any()
        fate = Fate(batch.num_rows, self.engine.lock)
        self.engine.submit(Piece(batch, fate, None, 100, 1e18), places)
        return fate

    def stream(self, name: str) -> Stream:
        """The only one to that segment."""
        eventually(lambda: any(s.segment.name == name for s in Stream.made), 5)
        (found,) = [s for s in Stream.made if s.segment.name == name]
        return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    Stream.made = []
    monkeypatch.setattr(smq.lanes, "SegmentStream", Stream)
    monkeypatch.setattr(OutcomeAsker, "ask", lambda *_: None)
    made = Bench()
    yield made
    made.engine.close()


def opened() -> dict[str, Any]:
    return {"opened": pb.ProducerReply.Opened(max_batch_bytes=1 << 20)}


def sealed(bench: Bench, layout: Layout) -> dict[str, Any]:
    old = FIRST.segments[0]
    successors = [s for s in layout.segments if s.name != old.name]
    return {"sealed": outcome_to_pb(SealOutcome(old.name, 0, {}, None), successors=successors)}


def test_what_is_left_goes_on_at_once_when_the_outcome_is_known(bench: Bench) -> None:
    bench.send()
    old = bench.stream("t-0-8-0")
    old.reply(**opened())
    eventually(lambda: old.sent == [0], 5)
    bench.view.change(SPLIT)
    ahead = [bench.stream("t-0-4-1"), bench.stream("t-4-8-2")]
    for stream in ahead:
        stream.reply(**opened())
    bench.send()
    eventually(lambda: old.sent == [0, 1], 5)
    assert [s.sent for s in ahead] == [[], []], "the segment that is being replaced still takes what is written"
    old.reply(**sealed(bench, SPLIT))
    eventually(lambda: [s.sent for s in ahead] == [[0, 1], [0, 1]], 5)
    assert len(Stream.made) == 3


def test_a_merged_segment_gets_nothing_before_all_its_predecessors_are_settled(bench: Bench) -> None:
    bench.view.change(layouts.activate(SPLIT, ["t-0-8-0"], writer="3"))
    bench.send()
    halves = [bench.stream("t-0-4-1"), bench.stream("t-4-8-2")]
    for stream in halves:
        stream.reply(**opened())
    eventually(lambda: [s.sent for s in halves] == [[0], [0]], 5)
    merge = planned(bench.view.known.layout, ["t-0-4-1", "t-4-8-2"], successor(0, 8))
    bench.view.change(merge)
    whole = bench.stream("t-0-8-3")
    whole.reply(**opened())
    for stream, expected in zip(halves, ([], [0, 1]), strict=True):
        assert whole.sent == []
        told = outcome_to_pb(SealOutcome(stream.segment.name, 0, {}, None), successors=[merge.segment("t-0-8-3")])
        stream.reply(sealed=told)
        eventually(lambda expected=expected: whole.sent == expected, 5)


def test_a_successor_that_is_replaced_before_it_opened_is_given_up(bench: Bench) -> None:
    bench.send()
    old = bench.stream("t-0-8-0")
    old.reply(**opened())
    bench.view.change(SPLIT)
    bench.stream("t-0-4-1")
    again = planned(SPLIT, ["t-0-4-1"], successor(0, 4))
    bench.view.change(again)
    bench.stream("t-0-4-3")
    assert set(bench.engine._runners) == {"t-0-8-0", "t-4-8-2", "t-0-4-3"}
    assert bench.engine.lanes.lanes["t-0-4-1"].idle


def test_nobody_opens_streams_to_what_it_does_not_write_to(bench: Bench) -> None:
    bench.view.change(SPLIT)
    bench.engine.close()
    assert Stream.made == []
