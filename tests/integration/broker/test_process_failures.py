"""Failures of the primary, the follower, the filer and the process, and what survives them."""

import pytest

from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from support.data.raw_flight import RawProducer, rows, rows_of_size
from support.processes.broker import BrokerProcesses, make_segment, make_topic
from support.processes.seaweed import Seaweed
from support.waiting import eventually

pytestmark = pytest.mark.integration


def rows_in(chain: ChunkChain) -> int:
    return sum(info.rows for info in chain.walk())


@pytest.mark.slow
def test_nothing_acked_is_lost_when_the_primary_is_killed(brokers: BrokerProcesses, store: Store):
    one, two = brokers.start("b1", "b2")
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    for _ in range(200):
        producer.send(rows_of_size(10, 1000))
    producer.wait_acked(100)
    one.kill()
    with producer.changed:
        acked = dict(producer.acked)

    outcome = two.seal(topic, segment)

    last_acked = max(acked)
    assert outcome.end >= acked[last_acked] + 10
    assert rows_in(ChunkChain(store, topic.name, topic.uid, segment.name)) == outcome.end
    again = two.outcome(topic, segment, "p")
    assert again.end == outcome.end and set(again.producers) == {"p"}
    assert again.producers["p"].last_sequence >= last_acked
    assert two.outcome(topic, segment, "nobody").producers == {}


@pytest.mark.slow
def test_without_its_follower_a_segment_acks_nothing_until_it_is_sealed(brokers: BrokerProcesses):
    one, two = brokers.start("b1", "b2")
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    producer.wait_acked(producer.send(rows([b"before"])))
    two.kill()
    unacked = producer.send(rows([b"after"]))
    eventually(lambda: one.report(segment).end == 2)
    heartbeats = producer.heartbeats
    eventually(lambda: producer.heartbeats >= heartbeats + 2)
    assert unacked not in producer.acked
    assert one.report(segment).watermark == 1

    outcome = one.seal(topic, segment)

    # A batch without an ack may be in the log. Only the outcome shows which ones are.
    assert outcome.end == 2
    sealed = producer.wait_sealed()
    assert sealed.producers["p"].last_sequence == unacked
    assert unacked not in producer.acked


@pytest.mark.slow
def test_a_follower_that_comes_back_gets_what_it_missed(brokers: BrokerProcesses):
    one, two = brokers.start("b1", "b2")
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    producer.wait_acked(producer.send(rows([b"a"])))
    two.pause()
    try:
        for _ in range(5):
            producer.send(rows_of_size(1, 1000))
        # Longer than the connection lives, so that the stream must be opened again.
        eventually(lambda: one.events("follower.disconnected"))
        assert set(producer.acked) == {0}
    finally:
        two.resume()
    producer.wait_acked(5)
    assert two.report(segment).end == 6


@pytest.mark.slow
def test_a_stopped_filer_stops_producers_before_memory_runs_out(
    brokers: BrokerProcesses, seaweed: Seaweed, store: Store
):
    flags = ["--memory", "32Mi", "--filer-timeout", "2"]
    one, two = brokers.start("b1", "b2", flags=flags)
    topic = make_topic(flush_bytes=1 << 20)
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    producer.wait_acked(producer.send(rows_of_size(1, 1000)))
    before = max(one.memory, two.memory)
    seaweed.stop()
    sent = 0
    try:
        batch = rows_of_size(256, 1000)
        # 12 MB are more than the follower's credit, which is 3 MB and grows to 9 MB. Network buffers hold some more.
        for _ in range(48):
            sent = producer.send(batch)
        eventually(lambda: one.report(segment).tail_bytes > 6 << 20)
        eventually(lambda: "smq_producer_waits_total 0" not in one.get("/metrics")[1])

        def stands_still() -> bool:
            acked, heartbeats = len(producer.acked), producer.heartbeats
            eventually(lambda: producer.heartbeats >= heartbeats + 2)
            return acked > 10 and acked == len(producer.acked)

        eventually(stands_still)
        assert len(producer.acked) < sent
        assert one.report(segment).tail_bytes < 12 << 20
        assert max(one.memory, two.memory) < before + (96 << 20)
    finally:
        seaweed.start()
    producer.wait_acked(sent)
    outcome = one.seal(topic, segment)
    assert outcome.end == 1 + 48 * 256
    assert rows_in(ChunkChain(store, topic.name, topic.uid, segment.name)) == outcome.end


@pytest.mark.slow
def test_sigterm_without_a_leader_writes_the_tail_and_ends(brokers: BrokerProcesses, store: Store):
    one, two = brokers.start("b1", "b2", flags=["--leader-timeout", "0.5"])
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    producer.wait_acked(producer.send(rows([b"kept"] * 7)))
    chain = ChunkChain(store, topic.name, topic.uid, segment.name)
    assert rows_in(chain) == 0
    one.terminate()
    assert one.wait() == 0
    assert rows_in(chain) == 7
    assert chain.read_seal_chunk() is None


def test_a_broker_serves_while_it_waits_for_a_leader_and_a_second_sigterm_ends_it(brokers: BrokerProcesses):
    one, two = brokers.start("b1", "b2", flags=["--leader-timeout", "3600", "--grace", "3600"])
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    one.terminate()
    eventually(lambda: one.get("/readyz")[0] == 503)
    producer.wait_acked(producer.send(rows([b"late"])))
    one.terminate()
    assert one.wait() == 0


def test_streams_of_vanished_producers_leave_nothing_behind(brokers: BrokerProcesses):
    (one,) = brokers.start("b1")
    topic = make_topic()
    segment = make_segment(topic, one.replica)
    one.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    for _ in range(50):
        producer.send(rows_of_size(1, 100))
    producer.wait_acked(10)
    producer.drop_connections()
    eventually(lambda: 'smq_streams{kind="producers"} 0.0' in one.get("/metrics")[1])
    survivor = RawProducer(one.address, topic, segment, name="q")
    survivor.wait_acked(survivor.send(rows_of_size(1, 1)))


def test_refused_credentials_end_the_process_with_a_message(brokers: BrokerProcesses):
    # Without credentials SeaweedFS creates no buckets, and it refuses a missing one.
    broker = brokers.start("b1", flags=["--filer-url", "s3://smq-not-there/x"], wait=False)[0]
    assert broker.wait() == 3
    assert "AWS_ACCESS_KEY_ID" in broker.event("store.rejected")["error"]


def test_an_unreachable_filer_is_waited_for(brokers: BrokerProcesses):
    flags = ["--filer-endpoint", "http://127.0.0.1:9", "--filer-timeout", "1"]
    broker = brokers.start("b1", flags=flags, wait=False)[0]
    warning = eventually(lambda: broker.event("store.unavailable"))
    broker.http = warning["http"]
    status, reason = broker.get("/readyz")
    assert status == 503 and "127.0.0.1:9" in reason
    assert broker.get("/healthz")[0] == 200
    broker.terminate()
    assert broker.wait() == 0
