"""The filer is away while a leader runs, or the leader itself is paused. Work waits, and nothing is lost."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from smq_core.errors import StoreUnavailable
from smq_proto.v1 import admin_pb2
from smq_proto.wire import segment_from_pb, topic_from_pb
from support.data.segment_writer import SegmentWriter, sealed_segments, write
from support.fault_injection.store_proxy import StoreFault, StoreProxy
from support.processes.cli import smq
from support.processes.leader import LeaderProcess, manifest
from support.processes.seaweed import Seaweed
from support.waiting import eventually

pytestmark = pytest.mark.integration

NO_WRITES = "the filer takes no writes since"


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[StoreProxy]:
    with StoreProxy(seaweed.endpoint) as made:
        yield made


@pytest.fixture
def leader(tmp_path: Path, seaweed: Seaweed, prefix: str, proxy: StoreProxy) -> Iterator[LeaderProcess]:
    """A leader and brokers whose filer can be taken away."""
    settings = replace(seaweed.settings(prefix, timeout=3.0), endpoint=proxy.endpoint)
    made = LeaderProcess(tmp_path, settings).start()
    made.wait_for_brokers()
    yield made
    made.stop()


@pytest.mark.slow
def test_failover_waits_for_the_filer_and_acks_do_not(leader: LeaderProcess, proxy: StoreProxy):
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    producer = write(leader.locate(), segment, 10)
    away = proxy.add(StoreFault.ERROR_500, method=None, times=None)
    producer.wait_acked(producer.send(producer.rows(5)))
    dead = leader.kill_broker(segment.replicas[1].broker)
    eventually(lambda: away.used > 20, what="the leader tries")
    assert leader.locate().layout.segments[0].name == segment.name, "the leader still answers"
    with pytest.raises(StoreUnavailable, match="not created yet"):
        leader.call("ApplyTopic", admin_pb2.ApplyTopicRequest(manifest=manifest("other")))
    away.times = 0
    leader.wait_until_open(without=dead)
    assert sealed_segments(leader, segment.name).end == 15
    assert leader.wait_until_open("other"), "what was applied meanwhile is made now"
    producer.close()


@pytest.mark.slow
def test_a_split_that_waits_for_the_filer_says_so_and_is_done_later(leader: LeaderProcess, proxy: StoreProxy):
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    away = proxy.add(StoreFault.HOLD, method=None, times=None)
    ran = smq("segment", "split", segment.name, "--timeout", "2", leader=leader.address)
    assert ran.code == 1 and "the leader waits for the filer: no clear answer from" in ran.err, ran
    away.times = 0
    away.release.set()
    eventually(lambda: len(leader.wait_until_open()) == 2)


def test_a_leader_that_was_paused_suspects_no_broker(leader: LeaderProcess):
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    version = leader.locate().layout.version
    producer = write(leader.locate(), segment, 10)
    os.kill(leader.process.pid, signal.SIGSTOP)
    seen = producer.heartbeats
    eventually(lambda: producer.heartbeats >= seen + 4, what="four seconds pass for the brokers")
    producer.wait_acked(producer.send(producer.rows(1)))
    os.kill(leader.process.pid, signal.SIGCONT)
    eventually(lambda: leader.events("leader.pause_detected"))
    eventually(lambda: len(leader.alive()) == 3)
    assert leader.wait_until_open()[0].name == segment.name
    assert leader.locate().layout.version == version
    producer.close()


def condition(leader: LeaderProcess, topic: str, type_: str) -> str:
    """The status of a condition."""
    listed = leader.call("ListTopics", admin_pb2.ListTopicsRequest())
    (found,) = (it for it in listed.topics if it.info.name == f"default/{topic}")
    return next(it.status for it in found.conditions if it.type == type_)


def write_without_acks(leader: LeaderProcess, topic: str) -> SegmentWriter:
    """A producer whose messages wait for the filer."""
    located = leader.locate(topic)
    (segment,) = located.layout.segments
    writer = SegmentWriter(
        segment.replicas[0].address, topic_from_pb(located.topic), segment_from_pb(segment), name="waits"
    )
    writer.wait_opened()
    writer.partition = segment.start
    writer.send(writer.rows(5))
    return writer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "method"), [(StoreFault.ERROR_500, "PUT"), (StoreFault.HOLD, None)], ids=["full", "stopped"]
)
def test_whatever_shows_a_state_says_that_the_filer_takes_no_writes(
    leader: LeaderProcess, proxy: StoreProxy, fault: StoreFault, method: str | None
):
    """A full filer refuses writes and can be read; a stopped one takes connections and answers nothing."""
    for topic, spec in (("replicated", {}), ("stored", {"durability": "Stored", "replicas": 1})):
        leader.apply(manifest(topic, **spec))
        (segment,) = leader.wait_until_open(topic)
        producer = write(leader.locate(topic), segment, 10)
        producer.close()

    def shown(*command: str) -> str:
        ran = smq(*command, leader=leader.address)
        assert ran.code == 0, ran
        return ran.out + ran.err

    def metric(value: str) -> bool:
        return f"smq_leader_filer_available {value}" in leader.http_get("/metrics")[1]

    assert metric("1.0") and NO_WRITES not in shown("topic", "list")
    away = proxy.add(fault, method=method, times=None)
    writer = write_without_acks(leader, "stored")
    eventually(lambda: metric("0.0"), what="the leader knows of the outage")
    for command in (("broker", "list"), ("top", "--once")):
        assert NO_WRITES in shown(*command), command
    for path, code in (("/readyz", 200), ("/overview.json", 200)):
        answer = leader.http_get(path)
        assert answer[0] == code and NO_WRITES in answer[1], answer
    eventually(lambda: condition(leader, "stored", "Ready") == "False", what="nothing of it is acked for some time")
    listed = shown("topic", "list")
    assert re.search(r"^stored .* no$", listed, re.MULTILINE) and NO_WRITES in listed, listed
    assert re.search(r"^replicated .* yes$", listed, re.MULTILINE), "its producers meet no problem"
    described = shown("topic", "describe", "stored")
    assert re.search(r"^Ready: +no", described, re.MULTILINE), described
    assert re.search(r"^FilerAvailable +False ", described, re.MULTILINE), described

    away.times = 0
    away.release.set()
    eventually(lambda: metric("1.0"), what="the leader knows of the end")
    eventually(lambda: condition(leader, "stored", "Ready") == "True", what="it acks again")
    assert NO_WRITES not in shown("topic", "list") and NO_WRITES not in leader.http_get("/readyz")[1]
    writer.close()
