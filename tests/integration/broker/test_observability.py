"""Health endpoints, metrics and logs of a broker."""

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from smq_core.errors import Unavailable
from support.data.raw_flight import RawProducer, rows
from support.processes.broker import BrokerProcesses, make_segment, make_topic
from support.processes.leader_stub import RecordingLeader
from support.waiting import eventually

pytestmark = pytest.mark.integration

DOCUMENTED = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()


@pytest.mark.slow
def test_metrics_count_and_are_documented(brokers: BrokerProcesses):
    one, two = brokers.start("b1", "b2")
    topic = make_topic()
    segment = make_segment(topic, one.replica, two.replica)
    for broker in (one, two):
        broker.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    producer.wait_acked(producer.send(rows([b"v"] * 5)))
    families = {f.name: f for f in text_string_to_metric_families(one.get("/metrics")[1])}
    assert all(name.startswith("smq_") for name in families)
    assert not [name for name in families if f"`{name}" not in DOCUMENTED]

    def value(name: str, **labels: str) -> float:
        found = text_string_to_metric_families(one.get("/metrics")[1])
        return next(s.value for f in found for s in f.samples if s.name == name and s.labels == labels)

    assert value("smq_messages_total", role="primary") == 5
    assert value("smq_batches_total", role="primary") == 1
    assert value("smq_segments", role="primary", state="open") == 1
    assert value("smq_tail_bytes", role="primary") > 0
    assert value("smq_streams", kind="producers") == 1
    one.seal(topic, segment)
    assert value("smq_segments", role="primary", state="sealed") == 1
    assert value("smq_tail_bytes", role="primary") == 0
    assert value("smq_memory_used_bytes", budget="producers") == 0
    assert value("smq_messages_total", role="primary") == 5


@pytest.mark.slow
def test_every_line_of_a_segment_names_segment_topic_and_broker(brokers: BrokerProcesses):
    (one,) = brokers.start("b1")
    topic = make_topic("travel/flights")
    segment = make_segment(topic, one.replica)
    one.open(topic, segment)
    one.seal(topic, segment)
    lines = [json.loads(line) for line in one.log.read_text().splitlines()]
    assert all(line["broker"] == "b1" and line["timestamp"] and line["level"] for line in lines)
    about = [line for line in lines if line["event"].startswith(("segment.", "seal."))]
    assert len(about) >= 4
    assert all((line["segment"], line["topic"]) == (segment.name, "travel/flights") for line in about)


@pytest.mark.slow
def test_a_drained_broker_is_not_ready_and_opens_nothing(brokers: BrokerProcesses):
    with RecordingLeader() as leader:
        (one,) = brokers.start("b1", flags=["--leader", leader.address])
        eventually(lambda: one.get("/readyz") == (200, "ok\n"))
        leader.drain = True
        eventually(lambda: leader.last.status.draining)
    eventually(lambda: one.get("/readyz") == (503, "draining\n"))
    assert one.get("/healthz")[0] == 200
    assert one.status().draining
    topic = make_topic()
    with pytest.raises(Unavailable, match="drained"):
        one.open(topic, make_segment(topic, one.replica))
