"""A real leader is killed while it carries out retention; the next one finishes it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from smq_core.model import Topic
from smq_proto.v1 import leader_pb2 as lpb
from smq_storage import index
from smq_storage.store import Store
from smq_storage.topics import read_current, read_topic
from support.leader_process import LeaderProcess, manifest
from support.retained import left_over, missing
from support.waiting import eventually
from support.writing import sealed, write

pytestmark = pytest.mark.integration

QUICKLY = ("--collect-every", "200ms", "--removed-files-stay", "1ms")


def the_topic(store: Store) -> Topic:
    current = read_current(store, "default/t")
    assert current is not None
    topic = read_topic(store, "default/t", current[0])
    assert topic is not None
    return topic


def roll(leader: LeaderProcess) -> str:
    (segment,) = leader.settled()
    write(leader.locate(), segment, 10).close()
    leader.call("Plan", lpb.PlanRequest(topic="t", action="roll", segments=[segment.name]))
    sealed(leader, segment.name)
    return segment.name


def metric(leader: LeaderProcess, line: str) -> float:
    (value,) = re.findall(rf"^{re.escape(line)} (\S+)$", leader.http_get("/metrics")[1], re.MULTILINE)
    return float(value)


@pytest.mark.parametrize("at", ["decision", "retention.files"])
def test_a_leader_killed_during_retention_leaves_work_that_the_next_one_finishes(
    new_leader: Callable[..., LeaderProcess], store: Store, at: str
) -> None:
    leader = new_leader(*QUICKLY).start()
    leader.wait_for_brokers()
    leader.apply(manifest(retention={"age": "1h"}))
    names = [roll(leader) for _ in range(6)]
    topic = the_topic(store)
    assert [e.name for e in index.read(store, topic.name, topic.uid)] == names
    leader.apply(manifest(retention={"age": "1s"}))
    eventually(
        lambda: [e for e in leader.events(at) if at != "decision" or e["action"] == "retention"], 20, pause=0.001
    )
    leader.kill()
    assert not missing(store, topic), "what the index still lists is all there"
    leader.start(*QUICKLY)
    leader.settled()
    eventually(lambda: not index.read(store, topic.name, topic.uid), 20, what="all of them are beyond the limit")
    eventually(lambda: not left_over(store, topic), 20, what="no file is left of them")
    eventually(lambda: not index.load(store, topic.name, topic.uid).deleting, 20)
    assert not missing(store, topic)
    assert metric(leader, 'smq_topic_segments{phase="sealed",topic="default/t"}') == 0
    assert metric(leader, "smq_leader_collect_failures_total") == 0
    roll(leader)
    eventually(lambda: metric(leader, 'smq_topic_removed_segments_total{topic="default/t"}') >= 1, 20)
