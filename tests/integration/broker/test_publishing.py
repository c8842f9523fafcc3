"""The life of a batch: it is published, replicated, acked, written to the filer, and sealed."""

import pyarrow as pa
import pytest

from smq_core.model.entities import SECOND, Column
from smq_proto.v1 import data_pb2 as pb
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import message_schema
from smq_storage.object_store.store import Store
from support.data.raw_flight import RawProducer, RawReader, rows
from support.processes.broker import BrokerProcesses, make_segment, make_topic
from support.waiting import eventually

pytestmark = pytest.mark.integration


def values_of(chain: ChunkChain, first: int = 0) -> list[bytes]:
    """The values in the chunks from ``first`` on."""
    found: list[bytes] = []
    for info in chain.walk(first):
        if info.rows:
            read = chain.read(info.first)
            assert read is not None
            found += read[1].column("value").to_pylist()
    return found


@pytest.mark.slow
def test_acked_messages_are_in_the_parquet_of_the_sealed_segment(brokers: BrokerProcesses, store: Store):
    one, two = brokers.start("b1", "b2")
    topic = make_topic(flush_interval=3600 * SECOND)  # the tail stays in memory until it is read
    segment = make_segment(topic, one.replica, two.replica)
    two.open(topic, segment)
    one.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    assert not producer.wait_opened().HasField("last_sequence")
    producer.send(rows([b"0-%d" % i for i in range(3)]))
    producer.wait_acked(0)  # before its follower is connected, a segment takes one batch, and writes it out soon
    for number in range(1, 20):
        producer.send(rows([b"%d-%d" % (number, i) for i in range(3)]))
    assert [producer.wait_acked(s) for s in range(20)] == [3 * s for s in range(20)]
    reader = RawReader(two.address, topic, segment, incarnation=two.incarnation)
    expected = [b"%d-%d" % (number, i) for number in range(20) for i in range(3)]
    assert reader.until(60).column("value").to_pylist() == expected

    outcome = one.seal(topic, segment)

    assert outcome.end == 60
    sealed = producer.wait_sealed()
    assert (sealed.end, sealed.producers["p"].last_sequence) == (60, 19)
    chain = ChunkChain(store, topic.name, topic.uid, segment.name)
    assert values_of(chain) == expected
    last = chain.read_seal_chunk()
    assert last is not None and last.first == 60 and last.producers["p"].last_sequence == 19
    assert reader.last().sealed.end == 60
    eventually(lambda: two.report(segment).state == pb.SegmentReport.SEALED, what="the follower learns of the seal")
    producer.close()


def test_a_stored_segment_acks_only_what_is_in_the_filer(brokers: BrokerProcesses, store: Store):
    (one,) = brokers.start("b1")
    topic = make_topic()
    segment = make_segment(topic, one.replica)
    one.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    chain = ChunkChain(store, topic.name, topic.uid, segment.name)
    for number in range(10):
        producer.wait_acked(producer.send(rows([b"%d" % number])))
        assert len(values_of(chain)) == number + 1
    assert one.seal(topic, segment).end == 10
    producer.wait_sealed()


@pytest.mark.slow
def test_typed_columns(brokers: BrokerProcesses, store: Store):
    (one,) = brokers.start("b1")
    columns = (Column("name", "string"), Column("delay", "float64", nullable=True))
    topic = make_topic(schema=columns)
    segment = make_segment(topic, one.replica)
    one.open(topic, segment)
    schema = message_schema(columns)
    batch = pa.RecordBatch.from_pylist(
        [{"partition": 3, "timestamp": 1, "name": "N1", "delay": None, "headers": None}], schema=schema
    )
    producer = RawProducer(one.address, topic, segment, schema=schema)
    producer.wait_acked(producer.send(batch))
    read = ChunkChain(store, topic.name, topic.uid, segment.name).read(0)
    assert read is not None
    assert read[1].column("name").to_pylist() == ["N1"]
    assert read[1].column("appended").null_count == 0
