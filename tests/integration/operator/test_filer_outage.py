"""The filer is away while a leader runs, or the leader itself is paused. Work waits, and nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from smq_core.errors import StoreUnavailable
from smq_proto.v1 import admin_pb2
from support.data.segment_writer import sealed_segments, write
from support.fault_injection.store_proxy import StoreFault, StoreProxy
from support.processes.cli import smq
from support.processes.leader import LeaderProcess, manifest
from support.processes.seaweed import Seaweed
from support.waiting import eventually

pytestmark = pytest.mark.integration


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
