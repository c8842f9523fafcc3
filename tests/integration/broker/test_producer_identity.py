"""What a broker remembers of producers, and what it answers to those that it has forgotten."""

import contextlib

import pyarrow as pa
import pytest

from smq_core.errors import ProducerFenced
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from support.data.raw_flight import RawProducer, rows
from support.processes.broker import BrokerProcesses, make_segment, make_topic

pytestmark = pytest.mark.integration


def publish(address: str, topic, segment, name: str, *, epoch: int = 0, instance: str = "i") -> None:
    """One message of a short-lived producer, acked."""
    producer = RawProducer(address, topic, segment, name=name, epoch=epoch, instance=instance)
    last = producer.wait_opened()
    sequence = last.last_sequence + 1 if last.HasField("last_sequence") else 0
    producer.wait_acked(producer.send(rows([name.encode()]), sequence))
    producer.close()


@pytest.mark.slow
def test_a_producer_with_an_open_stream_is_remembered(brokers: BrokerProcesses):
    """However many others come and go, its next batch is not a gap."""
    one, two = brokers.start("b1", "b2", flags=("--max-producers", "3"))
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    two.open(topic, segment)
    one.open(topic, segment)
    quiet = RawProducer(one.address, topic, segment, name="quiet", instance="q")
    quiet.wait_acked(quiet.send(rows([b"first"])))
    for number in range(10):
        publish(one.address, topic, segment, f"p{number}")
    quiet.wait_acked(quiet.send(rows([b"second"])))
    quiet.close()
    again = RawProducer(one.address, topic, segment, name="quiet", instance="q")
    assert again.wait_opened().last_sequence == 1
    again.close()


@pytest.mark.slow
def test_the_follower_seals_with_the_producers_that_the_primary_remembered(brokers: BrokerProcesses, store: Store):
    one, two = brokers.start("b1", "b2", flags=("--max-producers", "3"))
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    two.open(topic, segment)
    one.open(topic, segment)
    for number in range(10):
        publish(one.address, topic, segment, f"p{number}")
    last = RawProducer(one.address, topic, segment, name="p9", instance="i")
    opened = last.wait_opened()
    assert (opened.last_sequence, opened.end) == (0, 10)
    one.kill()

    outcome = two.seal(topic, segment)

    assert outcome.end == 10
    info = ChunkChain(store, topic.name, topic.uid, segment.name).read_seal_chunk()
    assert info is not None and set(info.producers) == {"p7", "p8", "p9"}
    assert info.forgotten_upto == opened.forgotten_upto == 7
    assert two.outcome(topic, segment, "p0").forgotten_upto == 7


@pytest.mark.slow
def test_a_successor_knows_epochs_and_instances_but_begins_at_sequence_0(brokers: BrokerProcesses):
    """The first segment has both producers, the second one is its successor, sealed empty, and the third follows it."""
    one, two = brokers.start("b1", "b2")
    topic = make_topic()
    first = make_segment(topic, one.replica, two.replica)
    second = make_segment(topic, one.replica, two.replica, number=1, predecessors=[first])
    third = make_segment(topic, two.replica, one.replica, number=2, predecessors=[second])
    for segment in (first, second, third):
        two.open(topic, segment)
        one.open(topic, segment)
    publish(one.address, topic, first, "p", epoch=2, instance="new")
    two.seal(topic, second, [third])  # its follower does not know what it inherits
    one.seal(topic, first, [second])
    for epoch, instance in ((1, "old"), (2, "other")):
        fenced = RawProducer(two.address, topic, third, name="p", epoch=epoch, instance=instance)
        with contextlib.suppress(pa.ArrowException, OSError):  # it is refused at once if the segment is open already
            fenced.send(rows([b"zombie"]))
        assert isinstance(fenced.wait_error(), ProducerFenced)
    publish(two.address, topic, third, "p", epoch=2, instance="new")
