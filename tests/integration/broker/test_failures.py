"""What dies, and what is kept: primary, follower, filer, the process itself."""

import time

import pytest

from smq_storage.chain import Chain
from smq_storage.store import Store
from support.broker_process import Brokers, make_segment, make_topic
from support.raw_flight import RawProducer, rows, sized
from support.seaweed import Seaweed
from support.waiting import eventually

pytestmark = pytest.mark.integration


def rows_in(chain: Chain) -> int:
    return sum(info.rows for info in chain.walk())


def test_nothing_acked_is_lost_when_the_primary_is_killed(brokers: Brokers, store: Store):
    one, two = brokers.start("b1", "b2")
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    for _ in range(200):
        producer.send(sized(10, 1000))
    producer.wait_acked(100)
    one.kill()
    with producer.changed:
        acked = dict(producer.acked)

    outcome = two.seal(topic, segment)

    last_acked = max(acked)
    assert outcome.end >= acked[last_acked] + 10
    assert outcome.producers["p"].last_sequence >= last_acked
    assert rows_in(Chain(store, topic.name, topic.uid, segment.name)) == outcome.end
    again = two.outcome(topic, segment, "p")
    assert again.end == outcome.end and set(again.producers) == {"p"}
    assert two.outcome(topic, segment, "nobody").producers == {}


def test_without_its_follower_a_segment_acks_nothing_until_it_is_sealed(brokers: Brokers):
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

    # What was not acked may be in the log all the same: only the outcome says.
    assert outcome.end == 2
    sealed = producer.wait_sealed()
    assert sealed.producers["p"].last_sequence == unacked
    assert unacked not in producer.acked


def test_a_follower_that_comes_back_gets_what_it_missed(brokers: Brokers):
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
            producer.send(sized(1, 1000))
        # Longer than the connection is kept: the stream must be opened again.
        eventually(lambda: one.events("follower.stream_broke"), 15)
        assert set(producer.acked) == {0}
    finally:
        two.resume()
    producer.wait_acked(5, 15)
    assert two.report(segment).end == 6


def test_a_stopped_filer_stops_producers_before_memory_runs_out(brokers: Brokers, seaweed: Seaweed, store: Store):
    flags = ["--memory", "32Mi", "--filer-timeout", "2"]
    one, two = brokers.start("b1", "b2", flags=flags)
    topic = make_topic(flush_bytes=1 << 20)
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    producer.wait_acked(producer.send(sized(1, 1000)))
    before = max(one.memory, two.memory)
    seaweed.stop()
    sent = 0
    try:
        batch = sized(256, 1000)
        # 12 MB: more than the follower's credit, of 3 MB first and 9 MB when it has grown, less than what the network's
        # windows hold besides.
        for _ in range(48):
            sent = producer.send(batch)
        eventually(lambda: one.report(segment).tail_bytes > 6 << 20)
        eventually(lambda: "smq_producer_waits_total 0" not in one.get("/metrics")[1])

        def stands_still() -> bool:
            acked, heartbeats = len(producer.acked), producer.heartbeats
            eventually(lambda: producer.heartbeats >= heartbeats + 2)
            return acked == len(producer.acked)

        eventually(stands_still, 20)
        acked = len(producer.acked)
        assert acked > 10
        assert acked < sent
        assert one.report(segment).tail_bytes < 12 << 20
        assert max(one.memory, two.memory) < before + (96 << 20)
    finally:
        seaweed.start()
    producer.wait_acked(sent, 60)
    outcome = one.seal(topic, segment)
    assert outcome.end == 1 + 48 * 256
    assert rows_in(Chain(store, topic.name, topic.uid, segment.name)) == outcome.end


def test_sigterm_without_a_leader_writes_the_tail_and_ends(brokers: Brokers, store: Store):
    one, two = brokers.start("b1", "b2")
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    producer.wait_acked(producer.send(rows([b"kept"] * 7)))
    chain = Chain(store, topic.name, topic.uid, segment.name)
    assert rows_in(chain) == 0
    one.terminate()
    eventually(lambda: one.get("/readyz")[0] == 503)
    # It serves on while it waits for a leader.
    producer.wait_acked(producer.send(rows([b"late"])))
    assert one.wait(20) == 0
    assert rows_in(chain) == 8
    assert chain.seal() is None


def test_a_second_sigterm_ends_it_at_once(brokers: Brokers):
    (one,) = brokers.start("b1")
    began = time.monotonic()
    one.terminate()
    eventually(lambda: one.events("broker.leaving"))
    one.terminate()
    assert one.wait(3) == 0
    assert time.monotonic() - began < 3


def test_streams_of_vanished_producers_leave_nothing_behind(brokers: Brokers):
    (one,) = brokers.start("b1")
    topic = make_topic()
    segment = make_segment(topic, one.replica)
    one.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    for _ in range(50):
        producer.send(sized(1, 100))
    producer.wait_acked(10)
    producer.vanish()
    eventually(lambda: 'smq_streams{kind="producer"} 0.0' in one.get("/metrics")[1])
    survivor = RawProducer(one.address, topic, segment, name="q")
    survivor.wait_acked(survivor.send(sized(1, 1)))


def test_refused_credentials_end_the_process_with_a_message(brokers: Brokers):
    # Without credentials SeaweedFS creates no buckets, and refuses what is not there.
    broker = brokers.start("b1", flags=["--filer-url", "s3://smq-not-there/x"], wait=False)[0]
    assert broker.wait(20) == 3
    assert "AWS_ACCESS_KEY_ID" in broker.event("store.unfit")["error"]


def test_an_unreachable_filer_is_waited_for(brokers: Brokers):
    flags = ["--filer-endpoint", "http://127.0.0.1:9", "--filer-timeout", "1"]
    broker = brokers.start("b1", flags=flags, wait=False)[0]
    warning = eventually(lambda: broker.event("store.unavailable"))
    broker.http = warning["http"]
    status, reason = broker.get("/readyz")
    assert status == 503 and "127.0.0.1:9" in reason
    assert broker.get("/healthz")[0] == 200
    broker.terminate()
    assert broker.wait(10) == 0
