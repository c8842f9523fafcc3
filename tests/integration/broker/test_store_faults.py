"""Chunks and seals on a faulty filer: nothing is duplicated or lost, and no broker fences itself."""

from collections.abc import Iterator

import pytest

from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Topic
from smq_proto.v1 import data_pb2 as pb
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import chunk_schema
from smq_storage.object_store.store import Store
from support.data.raw_flight import RawProducer, rows, rows_of_size
from support.fault_injection.store_proxy import StoreFault, StoreProxy
from support.processes.broker import BrokerProcess, BrokerProcesses, make_segment, make_topic
from support.processes.seaweed import Seaweed
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

UNCLEAR = [
    StoreFault.STORED_BUT_500,
    StoreFault.ERROR_500,
    StoreFault.CONFLICT_409,
    StoreFault.DROP_BEFORE,
    StoreFault.DROP_AFTER,
]


@pytest.fixture
def faulty(seaweed: Seaweed) -> Iterator[StoreProxy]:
    with StoreProxy(seaweed.endpoint) as proxy:
        yield proxy


@pytest.fixture
def broker(brokers: BrokerProcesses, faulty: StoreProxy) -> BrokerProcess:
    return brokers.start("b1", flags=["--filer-endpoint", faulty.endpoint, "--filer-timeout", "1"])[0]


@pytest.fixture
def topic() -> Topic:
    return make_topic()


def values(store: Store, topic: Topic, segment: str) -> list[bytes]:
    chain = ChunkChain(store, topic.name, topic.uid, segment)
    found: list[bytes] = []
    for info in chain.walk():
        read = chain.read(info.first)
        assert read is not None
        found += read[1].column("value").to_pylist()
    return found


@pytest.mark.parametrize("fault", UNCLEAR, ids=lambda fault: fault.name.lower())
def test_an_unclear_put_becomes_clear(
    broker: BrokerProcess, topic: Topic, faulty: StoreProxy, store: Store, fault: StoreFault
):
    segment = make_segment(topic, broker.replica)
    broker.open(topic, segment)
    producer = RawProducer(broker.address, topic, segment)
    for number in range(10):
        if number % 3 == 0:
            faulty.add(fault, contains=segment.name, times=2)
        producer.wait_acked(producer.send(rows([b"%d" % number])))
    assert broker.report(segment).state == pb.SegmentReport.OPEN
    faulty.add(fault, contains=segment.name, times=2)
    assert broker.seal(topic, segment).end == 10
    assert values(store, topic, segment.name) == [b"%d" % n for n in range(10)]


def test_a_put_that_lands_after_its_timeout_is_recognised(
    broker: BrokerProcess, topic: Topic, faulty: StoreProxy, store: Store
):
    """The broker cancels the attempt and retries with a longer tail. Both attempts have the same nonce."""
    segment = make_segment(topic, broker.replica)
    broker.open(topic, segment)
    late = faulty.add(StoreFault.HOLD, contains=segment.name)
    faulty.add(StoreFault.ERROR_500, contains=segment.name, times=3)
    producer = RawProducer(broker.address, topic, segment)
    producer.send(rows([b"0"]))
    assert late.reached.wait(HANG_GUARD)
    producer.send(rows([b"1"]))
    eventually(lambda: faulty.count("PUT", segment.name) >= 3)
    late.release.set()
    assert late.applied.wait(HANG_GUARD)
    producer.wait_acked(1)
    assert broker.report(segment).state == pb.SegmentReport.OPEN
    assert values(store, topic, segment.name) == [b"0", b"1"]


def test_a_seal_goes_on_until_the_filer_is_back(broker: BrokerProcess, topic: Topic, faulty: StoreProxy):
    segment = make_segment(topic, broker.replica)
    broker.open(topic, segment)
    producer = RawProducer(broker.address, topic, segment)
    producer.wait_acked(producer.send(rows_of_size(3, 10)))
    away = faulty.add(StoreFault.ERROR_500, contains=segment.name, times=None)
    with pytest.raises(Exception, match="did not answer"):
        broker.seal(topic, segment, timeout=1)
    eventually(lambda: broker.report(segment).state == pb.SegmentReport.FENCED and away.used)
    assert producer.sealed is None
    faulty.clear()
    assert producer.wait_sealed().end == 3


def test_a_primary_whose_chunk_was_taken_finds_out_how_it_was_sealed(broker: BrokerProcess, topic: Topic, store: Store):
    """A leader has sealed the Stored segment in the filer, which its broker learns at its next PUT."""
    segment = make_segment(topic, broker.replica)
    broker.open(topic, segment)
    producer = RawProducer(broker.address, topic, segment)
    producer.wait_acked(producer.send(rows_of_size(3, 10)))
    chain = ChunkChain(store, topic.name, topic.uid, segment.name)
    state = next(chain.walk()).producers
    seal = ChunkInfo(segment=segment.name, first=3, rows=0, writer="a leader", nonce="n", sealed=True, producers=state)
    assert chain.put_seal(seal, schema=chunk_schema()) == seal
    late = producer.send(rows_of_size(1, 10))
    outcome = producer.wait_sealed()
    assert outcome.end == 3 and outcome.producers["p"].last_sequence == 0
    assert late not in producer.acked
    assert broker.report(segment).state == pb.SegmentReport.SEALED
