"""A broker's reports to its leader, and how it follows the answers."""

from collections.abc import Iterator

import pytest

from smq_core.model.chunk_info import ChunkInfo
from smq_proto.v1 import data_pb2 as pb
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import chunk_schema
from smq_storage.object_store.store import Store
from support.data.raw_flight import RawProducer, rows
from support.processes.broker import BrokerProcesses, make_segment, make_topic
from support.processes.leader_stub import RecordingLeader
from support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def leader() -> Iterator[RecordingLeader]:
    with RecordingLeader() as stub:
        yield stub


@pytest.mark.slow
def test_the_first_report_registers_and_others_follow(brokers: BrokerProcesses, leader: RecordingLeader):
    (one,) = brokers.start("b1", flags=["--leader", leader.address, "--node", "n1", "--zone", "z1"])
    eventually(lambda: len(leader.reports) >= 4)
    first = leader.reports[0][1]
    assert (first.broker, first.incarnation, first.address) == ("b1", one.incarnation, one.address)
    assert (first.node, first.zone, first.status.memory_limit) == ("n1", "z1", 1 << 30)


@pytest.mark.slow
def test_changes_and_load_are_reported(brokers: BrokerProcesses, leader: RecordingLeader):
    (one,) = brokers.start("b1", flags=["--leader", leader.address])
    topic = make_topic(partitions=128)
    segment = make_segment(topic, one.replica)
    eventually(lambda: leader.reports)
    one.open(topic, segment)
    eventually(lambda: leader.last.status.segments)
    producer = RawProducer(one.address, topic, segment)
    producer.wait_acked(producer.send(rows([b"12345"] * 4, partition=6)))
    report = eventually(lambda: leader.last.status.segments[0].messages and leader.last.status.segments[0])
    assert (report.messages, report.batches, report.end, report.primary) == (4, 1, 4, True)
    assert 4 * 5 < report.bytes < 1000
    assert list(report.histogram) == [0, 0, 0, 4] + [0] * 60
    one.seal(topic, segment)
    eventually(lambda: leader.last.status.segments[0].state == pb.SegmentReport.SEALED)


@pytest.mark.slow
def test_an_unresponsive_follower_is_reported(brokers: BrokerProcesses, leader: RecordingLeader):
    one, two = brokers.start("b1", "b2", flags=["--leader", leader.address])
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    two.open(topic, segment)
    one.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    producer.wait_acked(producer.send(rows([b"v"])))

    def reported() -> list[str]:
        return next(list(r.unresponsive) for _, r in reversed(leader.reports) if r.broker == "b1")

    assert reported() == []
    two.pause()
    try:
        producer.send(rows([b"w"]))
        eventually(lambda: reported() == [two.incarnation])
    finally:
        two.resume()
    eventually(lambda: reported() == [])
    producer.wait_acked(1)


@pytest.mark.slow
def test_a_new_broker_is_not_ready_while_another_drains(brokers: BrokerProcesses, leader: RecordingLeader):
    leader.others_drain = True
    (one,) = brokers.start("b1", flags=["--leader", leader.address])
    eventually(lambda: one.get("/readyz") == (503, "another broker drains\n"))
    assert one.get("/healthz")[0] == 200
    leader.others_drain = False
    eventually(lambda: one.get("/readyz") == (200, "ok\n"))
    leader.others_drain, count_before = True, len(leader.reports)
    eventually(lambda: len(leader.reports) >= count_before + 2)
    assert one.get("/readyz")[0] == 200, "it was ready already"


@pytest.mark.slow
def test_the_leader_is_found_again_wherever_it_is(brokers: BrokerProcesses, leader: RecordingLeader):
    with RecordingLeader() as second:
        leader.other = second.address
        brokers.start("b1", flags=["--leader", f"127.0.0.1:9,{leader.address}"])
        eventually(lambda: len(second.reports) >= 2)
        assert not leader.reports
        second.other, leader.other = leader.address, None
        eventually(lambda: len(leader.reports) >= 2)


@pytest.mark.slow
def test_sigterm_requests_to_leave_and_the_broker_serves_until_it_may(
    brokers: BrokerProcesses, leader: RecordingLeader
):
    (one,) = brokers.start("b1", flags=["--leader", leader.address, "--leader-timeout", "3600"])
    topic = make_topic()
    segment = make_segment(topic, one.replica)
    one.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    one.terminate()
    eventually(lambda: leader.last.leaving and leader.last.status.draining)
    assert one.get("/readyz")[0] == 503
    seen = len(leader.reports)
    eventually(
        lambda: producer.wait_acked(producer.send(rows([b"v"]))) > 100 and len(leader.reports) >= seen + 3,
        what="it serves for three more reports",
    )
    one.seal(topic, segment)
    leader.may_leave = True
    assert one.wait() == 0
    assert producer.wait_sealed().end == producer.next_sequence


@pytest.mark.slow
def test_a_segment_that_the_leader_no_longer_names_is_looked_up(
    brokers: BrokerProcesses, leader: RecordingLeader, store: Store
):
    (one,) = brokers.start("b1", flags=["--leader", leader.address])
    topic = make_topic()
    segment = make_segment(topic, one.replica)
    leader.assigned = [segment.name]
    one.open(topic, segment)
    chain = ChunkChain(store, topic.name, topic.uid, segment.name)
    chain.put_seal(
        ChunkInfo(segment=segment.name, first=0, rows=0, writer="a leader", nonce="n", sealed=True),
        schema=chunk_schema(),
    )
    seen = len(leader.reports)
    eventually(lambda: len(leader.reports) >= seen + 2)
    assert one.report(segment).state == pb.SegmentReport.OPEN
    leader.assigned = []
    eventually(lambda: one.report(segment).state == pb.SegmentReport.SEALED)
