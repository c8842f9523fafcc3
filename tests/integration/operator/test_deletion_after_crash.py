"""A real leader is killed while it deletes a topic. The next one continues, and nothing more is acked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from smq_proto.v1 import admin_pb2
from smq_storage.catalog.deleted_topics import read_deleted_topic
from smq_storage.catalog.topics import read_current
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from support.data.segment_writer import write
from support.processes.leader import LeaderProcess, manifest
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_a_leader_killed_while_it_deletes_a_topic_leaves_work_that_the_next_one_finishes(
    new_leader: Callable[..., LeaderProcess], store: Store
) -> None:
    leader = new_leader().start()
    leader.wait_for_brokers()
    leader.apply(manifest(segments={"min": 4, "max": 8}))
    segments = leader.wait_until_open()
    located = leader.locate()
    writers = [write(located, segment, 10) for segment in segments]
    uid = located.topic.uid

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(leader.call, "DeleteTopic", admin_pb2.DeleteTopicRequest(topic="t"))
        eventually(lambda: (it := read_current(store, "default/t")) is not None and it[0] != uid, pause=0.001)
        leader.kill()
        deleting.exception(HANG_GUARD)  # whether it was answered just before does not matter
    leader.start()
    eventually(lambda: (it := read_deleted_topic(store, uid)) is not None and it.sealed, what="the next leader ends it")
    for segment in segments:
        seal = ChunkChain(store, "default/t", uid, segment.name).read_seal_chunk()
        assert seal is not None and seal.first >= 10, "what was acked is in the files"
    for writer in writers:
        writer.close()
