"""The topic's schema changes while a producer sends. The test plays the leader and the primaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

import smq
from smq.producer import Producer
from smq_core.errors import SchemaMismatch
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Column, Segment, TopicSchema
from smq_core.model.keyspace import Ring
from smq_core.model.schema_evolution import evolve
from smq_proto.wire import outcome_to_pb
from support.in_memory.producer_sessions import DrivenSession, producer_of, session
from support.in_memory.topic import PARTITIONS, TopicInMemory
from support.waiting import HANG_GUARD, eventually

ID = Column("id", "int32")
NOTE = Column("note", "string", nullable=True)
GATE = Column("gate", "uint8", nullable=True)
FIRST = TopicSchema(0, (ID, NOTE))


class EvolvingTopic(TopicInMemory):
    """A topic whose schema changes as the leader does it: all segments are replaced in the same layout."""

    def __init__(self) -> None:
        super().__init__()
        self.topic = replace(self.topic, spec=replace(self.topic.spec, schema=FIRST.columns, key=None))
        layout = replace(self.snapshot.layout, schemas=(FIRST,))
        self.snapshot = replace(self.snapshot, topic=self.topic, layout=layout)

    def successors(self, version: int) -> list[Segment]:
        """What the segments are replaced by."""
        number = self.snapshot.layout.next_number
        return [
            replace(self.segment(number + n, s.range.start, s.range.stop, (s.name,)), schema_version=version)
            for n, s in enumerate(self.snapshot.layout.writable_segments)
        ]

    def change(self, *columns: Column) -> list[Segment]:
        """The next version of the schema. Returns the new segments."""
        layout = self.snapshot.layout
        schema = evolve(layout.schemas[-1], columns, None)
        new = self.successors(schema.version)
        by = {p: s.name for s in new for p in s.predecessors}
        old = [replace(s, successors=(by[s.name],)) if s.name in by else s for s in layout.segments]
        self.snapshot = replace(self.snapshot, layout=replace(layout, schemas=(*layout.schemas, schema)))
        self.set_layout([*old, *new])
        return new


@pytest.fixture
def topic(driven_sessions: None) -> EvolvingTopic:
    return EvolvingTopic()


@pytest.fixture
def producer(topic: EvolvingTopic) -> Iterator[Producer]:
    with producer_of(topic) as made:
        yield made


def seal(old: DrivenSession, *successors: Segment) -> None:
    """The segment of this stream ends without any batch of this producer."""
    old.reply(sealed=outcome_to_pb(SealOutcome(segment=old.segment.name, end=0), successors=successors))


def rows(one: DrivenSession) -> list[dict[str, object]]:
    """The topic's own columns of everything that was sent on the stream."""
    system = ("partition", "timestamp", "headers")
    return [{k: v for k, v in row.items() if k not in system} for batch in one.batches for row in batch.to_pylist()]


def test_what_a_sealed_segment_did_not_get_is_sent_with_the_new_columns(
    topic: EvolvingTopic, producer: Producer
) -> None:
    first = producer.send({"id": 1, "note": "a"})
    session(0).opened()
    eventually(lambda: session(0).written == [0])

    new = topic.change(Column("id", "int64"), NOTE, GATE)
    seal(session(0), *new)

    eventually(lambda: any(s.segment.name == new[0].name for s in DrivenSession.opened_sessions))
    session(1).opened()
    eventually(lambda: rows(session(1)) == [{"id": 1, "note": "a", "gate": None}])
    assert session(1).schema.field("id").type == pa.int64()
    session(1).ack(0, 0)
    assert first.result(HANG_GUARD) == smq.Receipt(new[0].name, 0)


def test_a_batch_with_new_columns_waits_for_the_successor(topic: EvolvingTopic, producer: Producer) -> None:
    before = producer.send({"id": 1})
    session(0).opened()
    eventually(lambda: session(0).written == [0])

    (successor,) = topic.change(ID, NOTE, GATE)
    after = producer.send({"id": 2, "gate": 7})
    producer.send({"id": 3})
    eventually(lambda: not producer._batcher._current)
    session(0).ack(0, 0)
    assert before.result(HANG_GUARD).offset == 0
    assert session(0).written == [0], "the old segment has no column for it"

    seal(session(0), successor)
    session(1).opened()
    eventually(lambda: [r["id"] for r in rows(session(1))] == [2, 3])
    assert rows(session(1)) == [{"id": 2, "note": None, "gate": 7}, {"id": 3, "note": None, "gate": None}]
    session(1).ack(0, 0)
    assert after.result(HANG_GUARD).segment == successor.name


def test_values_of_a_dropped_column_stop_the_producer(topic: EvolvingTopic, producer: Producer) -> None:
    """The topic has two segments: what is in flight to the other one still gets its outcome."""
    topic.set_layout([topic.segment(1, 0, 4, ("t-0-8-0",)), topic.segment(2, 4, PARTITIONS, ("t-0-8-0",))])
    table = pa.table({"id": pa.array(range(PARTITIONS), pa.int32()), "note": ["a", *[None] * (PARTITIONS - 1)]})
    lost = producer.write(table.slice(0, 1), key="id")
    mine = session(0).segment
    of_the_other = table.filter([_segment_of(producer, n) != mine.name for n in range(PARTITIONS)])
    others = producer.write(of_the_other, key="id")
    for n in (0, 1):
        session(n).opened()
        eventually(lambda n=n: session(n).written == [0])  # type: ignore[misc]

    new = topic.change(ID)
    behind = [producer.write(part.slice(0, 1).select(["id"]), key="id") for part in (table, of_the_other)]
    for n in (0, 1):
        eventually(lambda n=n: session(n).written == [0, 1])  # type: ignore[misc]
    seal(session(0), next(s for s in new if mine.name in s.predecessors))

    with pytest.raises(SchemaMismatch, match=r"dropped columns: note \(1 of 1 messages\)") as caught:
        lost.result(HANG_GUARD)
    assert caught.value.difference == ("column 'note' (string, nullable) is gone",)
    assert caught.value.expected == "id int32"
    with pytest.raises(SchemaMismatch, match="has stopped"):
        producer.send({"id": 3}).result(HANG_GUARD)
    with pytest.raises(SchemaMismatch, match="has stopped"):
        producer.write(table.select(["id"]), key="id")
    with pytest.raises(SchemaMismatch):
        behind[0].result(HANG_GUARD)
    assert not others.done()
    session(1).ack(0, 5)
    session(1).ack(1, 12)
    assert others.result(HANG_GUARD).offsets[0] == 5
    assert behind[1].result(HANG_GUARD).offsets[0] == 12
    assert all(not s.written for s in DrivenSession.opened_sessions[2:]), "nothing overtakes it"
    producer.close()


def _segment_of(producer: Producer, value: int) -> str:
    from smq.producing.encoding.keys import canonical_bytes, partitions

    (partition,) = partitions(canonical_bytes(pa.array([value], pa.int32())), 1, Ring(PARTITIONS), 0)
    route = producer._engine._machine.route
    return producer._engine._rows.table(route).segment_of(partition).name


def test_a_dropped_column_without_values_is_left_out(topic: EvolvingTopic, producer: Producer) -> None:
    producer.send({"id": 1})
    session(0).opened()
    eventually(lambda: session(0).written == [0])
    seal(session(0), *topic.change(ID))
    session(1).opened()
    eventually(lambda: rows(session(1)) == [{"id": 1}])


def test_successors_of_an_unknown_version_wait_for_the_layout(topic: EvolvingTopic, producer: Producer) -> None:
    """The primary can know the new layout before the client does."""
    producer.send({"id": 1, "note": "a"})
    session(0).opened()
    eventually(lambda: session(0).written == [0])

    seal(session(0), *topic.successors(1))
    assert [s.name for s in producer._engine._machine.route.segments] == [topic.first.name]

    (successor,) = topic.change(ID, NOTE, GATE)
    session(1).opened()
    assert session(1).segment.name == successor.name
    eventually(lambda: rows(session(1)) == [{"id": 1, "note": "a", "gate": None}])


def test_messages_of_two_versions_never_share_a_batch(topic: EvolvingTopic, producer: Producer) -> None:
    stream_opened = producer.send({"id": 0})
    session(0).opened()
    eventually(lambda: session(0).written == [0])
    session(0).ack(0, 0)
    stream_opened.result(HANG_GUARD)
    with producer._batcher._handover_lock:  # nothing is submitted meanwhile
        producer.send({"id": 1, "note": "a"})
        topic.change(ID, NOTE, GATE)
        producer.send({"id": 2, "gate": 1})
    seal(session(0), topic.snapshot.layout.segments[-1])
    eventually(lambda: len(DrivenSession.opened_sessions) > 1)
    session(1).opened()
    eventually(lambda: len(rows(session(1))) == 2)
    assert rows(session(1)) == [{"id": 1, "note": "a", "gate": None}, {"id": 2, "note": None, "gate": 1}]


def test_messages_that_do_not_need_the_new_columns_are_sent_until_the_seal(
    topic: EvolvingTopic, producer: Producer
) -> None:
    producer.send({"id": 1})
    session(0).opened()
    eventually(lambda: session(0).written == [0])

    (successor,) = topic.change(Column("id", "int64"), NOTE, GATE)
    producer.send({"id": 2})
    producer.write(pa.table({"id": [3]}))
    eventually(lambda: session(0).written == [0, 1, 2])

    seal(session(0), successor)
    session(1).opened()
    eventually(lambda: [r["id"] for r in rows(session(1))] == [1, 2, 3])
    producer.send({"id": 4})
    producer.send({"id": 5})
    eventually(lambda: [r["id"] for r in rows(session(1))] == [1, 2, 3, 4, 5])
    assert producer._encoder.version == 1


def test_only_what_needs_the_new_columns_waits_for_the_successor(topic: EvolvingTopic, producer: Producer) -> None:
    """A segment of the older version may be written to for a while: its turn to be sealed comes later."""
    producer.send({"id": 1, "note": "a"})
    session(0).opened()
    eventually(lambda: session(0).written == [0])

    topic.change(Column("id", "int64"), GATE)
    producer.send({"id": 2})
    producer.write(pa.table({"id": [3], "gate": pa.array([None], pa.uint8())}))
    eventually(lambda: session(0).written == [0, 1, 2])
    assert rows(session(0))[1:] == [{"id": 2, "note": None}, {"id": 3, "note": None}]
    producer.send({"id": 1 << 40})
    producer.send({"id": 5})
    eventually(lambda: not producer._batcher._current)
    assert session(0).written == [0, 1, 2], "the old segment has no place for it, and nothing overtakes it"


def test_a_value_that_only_the_new_type_holds_needs_the_new_schema(topic: EvolvingTopic, producer: Producer) -> None:
    topic.change(Column("id", "int64"), NOTE)
    producer.send({"id": 1 << 40})
    producer.write(pa.table({"id": [1 << 40]}))
    with pytest.raises(SchemaMismatch, match="does not fit int64"):
        producer.send({"id": 1 << 70})


def test_a_producer_follows_the_newest_schema(topic: EvolvingTopic, producer: Producer) -> None:
    with pytest.raises(SchemaMismatch, match="the topic has no column gate"):
        producer.send({"id": 1, "gate": 1})
    topic.change(ID, NOTE, GATE)
    producer.send({"id": 1, "gate": 1})
    producer.write(pa.table({"id": [1], "gate": [1]}))

    topic.change(ID, GATE)
    with pytest.raises(SchemaMismatch, match=r"^default/t: the topic has no column note \(it was dropped\)$"):
        producer.send({"id": 1, "note": "a"})
    with pytest.raises(SchemaMismatch, match=r"no column note \(it was dropped\)"):
        producer.write(pa.table({"id": [1], "note": ["a"]}))
