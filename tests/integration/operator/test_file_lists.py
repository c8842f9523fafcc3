"""Every sealed segment gets a file list that lists what its chunk chain has, whoever is killed. With real processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from smq_core.model.entities import SealedSegment, Topic
from smq_proto.v1 import admin_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.topics import read_current, read_topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import read_file_list
from support.data.segment_writer import sealed_segments, write
from support.data.stored_segment import file_list_of_chain
from support.processes.leader import LeaderProcess, manifest
from support.waiting import eventually

pytestmark = pytest.mark.integration

MANY_CHUNKS = {"flush": {"interval": "100ms"}}


def the_topic(store: Store) -> Topic:
    current = read_current(store, "default/t")
    assert current is not None
    topic = read_topic(store, "default/t", current[0])
    assert topic is not None
    return topic


def write_chunks(leader: LeaderProcess, store: Store, chunks: int = 3) -> pb.Segment:
    """Writes to the only segment until it has that number of chunks."""
    (segment,) = leader.wait_until_open()
    topic = the_topic(store)
    chain = ChunkChain(store, topic.name, topic.uid, segment.name)

    def has_chunks(count: int) -> Callable[[], bool]:
        return lambda: len(list(chain.walk())) >= count

    for number in range(chunks):
        write(leader.locate(), segment, 10, name=f"p{number}").close()
        eventually(has_chunks(number + 1), what=f"chunk {number} is written")
    return segment


def roll(leader: LeaderProcess, segment: pb.Segment) -> None:
    leader.call("ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[segment.name]))


def named_entry(store: Store, segment: str) -> SealedSegment:
    """Waits until the index names the segment's file list."""
    topic = the_topic(store)

    def named() -> SealedSegment:
        (entry,) = (it for it in sealed_index.read(store, topic.name, topic.uid) if it.name == segment)
        assert entry.file_list, "the index names no file list yet"
        return entry

    return eventually(named, what=f"the file list of {segment} is named")


def must_equal_the_walk(store: Store, entry: SealedSegment) -> None:
    topic = the_topic(store)
    found = read_file_list(store, topic.name, topic.uid, entry.file_list)
    assert found is not None
    walked = file_list_of_chain(ChunkChain(store, topic.name, topic.uid, entry.name), topic.spec.key)
    assert walked is not None
    assert found == walked
    assert (found.end, found.files[-1].end) == (entry.end, entry.end)


def metric(leader: LeaderProcess, line: str) -> float:
    lines = leader.http_get("/metrics")[1].splitlines()
    (value,) = (it.rpartition(" ")[2] for it in lines if it.startswith(f"{line} "))
    return float(value)


def wait_until_all_are_named(leader: LeaderProcess) -> None:
    unnamed = 'smq_topic_segments_without_file_list{topic="default/t"}'
    eventually(lambda: metric(leader, unnamed) == 0, what="every sealed segment has a file list")


def test_the_broker_that_seals_a_segment_writes_its_file_list(leader: LeaderProcess, store: Store) -> None:
    leader.apply(manifest(**MANY_CHUNKS))
    segment = write_chunks(leader, store)
    roll(leader, segment)
    sealed_segments(leader, segment.name)
    entry = named_entry(store, segment.name)
    must_equal_the_walk(store, entry)
    assert paths.file_list_version(entry.file_list) == 0
    wait_until_all_are_named(leader)
    assert not [e for e in leader.events("file_lists.named") if segment.name in e["built"]], "the leader walked nothing"
    eventually(lambda: sealed_segments(leader, segment.name).file_list == entry.file_list, what="clients get its name")


@pytest.mark.slow
def test_the_leader_builds_what_a_killed_broker_did_not_write(leader: LeaderProcess, store: Store) -> None:
    """The follower that seals in the primary's place knows the first chunks only as written."""
    leader.apply(manifest(replicas=2, **MANY_CHUNKS))
    segment = write_chunks(leader, store)
    leader.kill_broker(segment.replicas[0].broker)
    sealed_segments(leader, segment.name)
    entry = named_entry(store, segment.name)
    must_equal_the_walk(store, entry)
    wait_until_all_are_named(leader)
    (built,) = (e for e in leader.events("file_lists.named") if segment.name in e["segments"])
    assert built["built"] == [segment.name]


@pytest.mark.slow
def test_a_leader_killed_between_write_and_name_is_continued_by_the_next(
    new_leader: Callable[..., LeaderProcess], store: Store
) -> None:
    leader = new_leader().start()
    leader.wait_for_brokers()
    leader.apply(manifest(replicas=2, **MANY_CHUNKS))
    segment = write_chunks(leader, store)
    leader.kill_broker(segment.replicas[0].broker)
    topic = the_topic(store)
    name = paths.file_list_name(segment.name, 0)
    eventually(lambda: read_file_list(store, topic.name, topic.uid, name), what="it is written", pause=0.001)
    leader.kill()
    leader.start()
    must_equal_the_walk(store, named_entry(store, segment.name))
    wait_until_all_are_named(leader)


@pytest.mark.slow
def test_a_damaged_file_list_is_replaced_by_the_next_leader(
    new_leader: Callable[..., LeaderProcess], store: Store
) -> None:
    leader = new_leader().start()
    leader.wait_for_brokers()
    leader.apply(manifest(**MANY_CHUNKS))
    segment = write_chunks(leader, store)
    roll(leader, segment)
    entry = named_entry(store, segment.name)
    leader.kill()
    topic = the_topic(store)
    store.put(paths.file_list(topic.name, topic.uid, entry.file_list), b"{")
    leader.start()

    def replaced() -> SealedSegment:
        found = named_entry(store, segment.name)
        assert found.file_list != entry.file_list
        return found

    found = eventually(replaced, what="the next version is named")
    assert paths.file_list_version(found.file_list) == 1
    topic_files = read_file_list(store, topic.name, topic.uid, found.file_list)
    walked = file_list_of_chain(ChunkChain(store, topic.name, topic.uid, segment.name), topic.spec.key)
    assert topic_files is not None
    assert walked is not None
    assert topic_files.files == walked.files
