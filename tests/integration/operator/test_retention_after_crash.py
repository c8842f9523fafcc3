"""A real leader is killed while it carries out retention; the next one finishes it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from smq_core.model.entities import Topic
from smq_proto.v1 import admin_pb2
from smq_storage.catalog import sealed_index
from smq_storage.catalog.topics import read_current, read_topic
from smq_storage.object_store.store import Store
from support.data.sealed_topic import leftover_files, missing_files
from support.data.segment_writer import sealed_segments, write
from support.processes.leader import LeaderProcess, manifest
from support.waiting import eventually

pytestmark = pytest.mark.integration

QUICKLY = ("--cleanup-interval", "200ms", "--removed-files-grace", "1ms")


def the_topic(store: Store) -> Topic:
    current = read_current(store, "default/t")
    assert current is not None
    topic = read_topic(store, "default/t", current[0])
    assert topic is not None
    return topic


def roll(leader: LeaderProcess) -> str:
    (segment,) = leader.wait_until_open()
    write(leader.locate(), segment, 10).close()
    leader.call("ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[segment.name]))
    sealed_segments(leader, segment.name)
    return segment.name


def metric(leader: LeaderProcess, line: str) -> float:
    (value,) = re.findall(rf"^{re.escape(line)} (\S+)$", leader.http_get("/metrics")[1], re.MULTILINE)
    return float(value)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["decision", "retention.files_deleted"])
def test_a_leader_killed_during_retention_leaves_work_that_the_next_one_finishes(
    new_leader: Callable[..., LeaderProcess], store: Store, at: str
) -> None:
    leader = new_leader(*QUICKLY).start()
    leader.wait_for_brokers()
    leader.apply(manifest(retention={"age": "1h"}))
    names = [roll(leader) for _ in range(6)]
    topic = the_topic(store)
    assert [e.name for e in sealed_index.read(store, topic.name, topic.uid)] == names
    leader.apply(manifest(retention={"age": "1s"}))
    eventually(lambda: [e for e in leader.events(at) if at != "decision" or e["action"] == "retention"], pause=0.001)
    leader.kill()
    assert not missing_files(store, topic), "what the index still lists is all there"
    leader.start(*QUICKLY)
    leader.wait_until_open()
    eventually(lambda: not sealed_index.read(store, topic.name, topic.uid), what="all of them are beyond the limit")
    eventually(lambda: not leftover_files(store, topic), what="no file is left of them")
    eventually(lambda: not sealed_index.load(store, topic.name, topic.uid).pending_deletion)
    assert not missing_files(store, topic)
    assert metric(leader, 'smq_topic_segments{phase="sealed",topic="default/t"}') == 0
    assert metric(leader, "smq_leader_cleanup_failures_total") == 0
    roll(leader)
    eventually(lambda: metric(leader, 'smq_topic_removed_segments_total{topic="default/t"}') >= 1)
