"""Chunks and seals through a filer that breaks requests: nothing twice, nothing lost, no broker fences itself."""

from collections.abc import Iterator

import pytest

from smq_core.model import ChunkInfo, Topic
from smq_storage.chain import Chain
from smq_storage.chunks import chunk_schema
from smq_storage.store import Store
from support.broker_process import BrokerProcess, Brokers, make_segment, make_topic
from support.faulty_store import Fault, FaultyStore
from support.raw_flight import RawProducer, rows, sized
from support.seaweed import Seaweed
from support.waiting import eventually

pytestmark = pytest.mark.integration

UNCLEAR = [Fault.STORED_BUT_500, Fault.ERROR_500, Fault.CONFLICT_409, Fault.DROP_BEFORE, Fault.DROP_AFTER]


@pytest.fixture
def faulty(seaweed: Seaweed) -> Iterator[FaultyStore]:
    with FaultyStore(seaweed.endpoint) as proxy:
        yield proxy


@pytest.fixture
def broker(brokers: Brokers, faulty: FaultyStore) -> BrokerProcess:
    return brokers.start("b1", flags=["--filer-endpoint", faulty.endpoint, "--filer-timeout", "1"])[0]


@pytest.fixture
def topic() -> Topic:
    return make_topic()


def values(store: Store, topic: Topic, segment: str) -> list[bytes]:
    chain = Chain(store, topic.name, topic.uid, segment)
    found: list[bytes] = []
    for info in chain.walk():
        read = chain.read(info.first)
        assert read is not None
        found += read[1].column("value").to_pylist()
    return found


@pytest.mark.parametrize("fault", UNCLEAR, ids=lambda fault: fault.name.lower())
def test_an_unclear_put_becomes_clear(
    broker: BrokerProcess, topic: Topic, faulty: FaultyStore, store: Store, fault: Fault
):
    segment = make_segment(topic, broker.replica)
    broker.open(topic, segment)
    producer = RawProducer(broker.address, topic, segment)
    for number in range(10):
        if number % 3 == 0:
            faulty.add(fault, contains=segment.name, times=2)
        producer.wait_acked(producer.send(rows([b"%d" % number])), 20)
    assert broker.report(segment).state == "open"
    faulty.add(fault, contains=segment.name, times=2)
    assert broker.seal(topic, segment).end == 10
    assert values(store, topic, segment.name) == [b"%d" % n for n in range(10)]


def test_a_put_that_lands_after_its_timeout_is_recognised(
    broker: BrokerProcess, topic: Topic, faulty: FaultyStore, store: Store
):
    """The broker gave the attempt up and tries again, with more in its tail by then; both carry one nonce."""
    segment = make_segment(topic, broker.replica)
    broker.open(topic, segment)
    late = faulty.add(Fault.HOLD, contains=segment.name)
    faulty.add(Fault.ERROR_500, contains=segment.name, times=3)
    producer = RawProducer(broker.address, topic, segment)
    producer.send(rows([b"0"]))
    assert late.reached.wait(10)
    producer.send(rows([b"1"]))
    eventually(lambda: faulty.count("PUT", segment.name) >= 3)
    late.release.set()
    assert late.applied.wait(10)
    producer.wait_acked(1, 20)
    assert broker.report(segment).state == "open"
    assert values(store, topic, segment.name) == [b"0", b"1"]


def test_a_seal_goes_on_until_the_filer_is_back(broker: BrokerProcess, topic: Topic, faulty: FaultyStore):
    segment = make_segment(topic, broker.replica)
    broker.open(topic, segment)
    producer = RawProducer(broker.address, topic, segment)
    producer.wait_acked(producer.send(sized(3, 10)))
    away = faulty.add(Fault.ERROR_500, contains=segment.name, times=None)
    with pytest.raises(Exception, match="did not answer"):
        broker.seal(topic, segment, timeout=1)
    assert broker.report(segment).state == "fenced"
    assert producer.sealed is None
    assert away.used > 0
    faulty.clear()
    assert producer.wait_sealed(20).end == 3


def test_a_primary_whose_chunk_was_taken_finds_out_how_it_was_sealed(broker: BrokerProcess, topic: Topic, store: Store):
    """Somebody else sealed its segment while it was away, as a leader may for a Stored one."""
    segment = make_segment(topic, broker.replica)
    broker.open(topic, segment)
    producer = RawProducer(broker.address, topic, segment)
    producer.wait_acked(producer.send(sized(3, 10)))
    chain = Chain(store, topic.name, topic.uid, segment.name)
    state = next(chain.walk()).producers
    seal = ChunkInfo(segment.name, 3, 0, writer="a leader", nonce="n", sealed=True, producers=state)
    assert chain.put_seal(seal, schema=chunk_schema()) == seal
    late = producer.send(sized(1, 10))
    told = producer.wait_sealed()
    assert told.end == 3 and told.producers["p"].last_sequence == 0
    assert late not in producer.acked
    assert broker.report(segment).state == "sealed"
