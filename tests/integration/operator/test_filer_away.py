"""The filer goes away under a running leader, or the leader itself stands still: work waits, and nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from smq_core.errors import StoreUnavailable
from smq_proto.v1 import leader_pb2 as lpb
from support.faulty_store import Fault, FaultyStore
from support.leader_process import LeaderProcess, manifest
from support.seaweed import Seaweed
from support.waiting import eventually
from support.writing import sealed, write

pytestmark = pytest.mark.integration


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultyStore]:
    with FaultyStore(seaweed.endpoint) as made:
        yield made


@pytest.fixture
def leader(tmp_path: Path, seaweed: Seaweed, prefix: str, proxy: FaultyStore) -> Iterator[LeaderProcess]:
    """A leader and brokers whose filer can be taken away."""
    settings = replace(seaweed.settings(prefix, timeout=3.0), endpoint=proxy.endpoint)
    made = LeaderProcess(tmp_path, settings).start()
    made.wait_for_brokers()
    yield made
    made.stop()


def test_failover_waits_for_the_filer_and_acks_do_not(leader: LeaderProcess, proxy: FaultyStore):
    leader.apply(manifest())
    (segment,) = leader.settled()
    producer = write(leader.locate(), segment, 10)
    away = proxy.add(Fault.ERROR_500, method=None, times=None)
    producer.wait_acked(producer.send(producer.rows(5)))
    dead = leader.kill_broker(segment.replicas[1].broker)
    eventually(lambda: away.used > 20, 20, what="the leader tries")
    assert leader.locate().layout.segments[0].name == segment.name, "the leader still answers"
    with pytest.raises(StoreUnavailable, match="not made yet"):
        leader.call("ApplyTopic", lpb.ApplyTopicRequest(manifest=manifest("other")), timeout=30)
    away.times = 0
    leader.settled(without=dead, timeout=40)
    assert sealed(leader, segment.name).end == 15
    assert leader.settled("other", timeout=30), "what was applied meanwhile is made now"
    producer.close()


def test_a_leader_that_stood_still_blames_nobody(leader: LeaderProcess):
    leader.apply(manifest())
    (segment,) = leader.settled()
    version = leader.locate().layout.version
    producer = write(leader.locate(), segment, 10)
    os.kill(leader.process.pid, signal.SIGSTOP)
    seen = producer.heartbeats
    eventually(lambda: producer.heartbeats >= seen + 4, 20, what="four seconds pass for the brokers")
    producer.wait_acked(producer.send(producer.rows(1)))
    os.kill(leader.process.pid, signal.SIGCONT)
    eventually(lambda: leader.events("leader.stood.still"), 10)
    eventually(lambda: len(leader.alive()) == 3, 10)
    assert leader.settled()[0].name == segment.name
    assert leader.locate().layout.version == version
    producer.close()
