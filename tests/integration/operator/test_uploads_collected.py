"""Uploads that no chunk names are collected when they are old; whatever a chunk names stays. On a real SeaweedFS."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from smq_core.model import ChunkInfo, Topic
from smq_operator.collect_deleted import Living, collect_deleted
from smq_operator.collect_strays import collect_strays
from smq_operator.collect_uploads import collect_uploads
from smq_operator.lifecycle import retire
from smq_operator.retain import delete_files, remove_expired
from smq_storage import paths
from smq_storage.chunks import ChunkDamaged, chunk_schema, encode_chunk
from smq_storage.conditional import Patience
from smq_storage.store import Store
from smq_storage.topics import read_current, read_topic
from support.dying_store import Died, DyingStore
from support.leader_process import LeaderProcess, manifest
from support.retained import HOLDER, ROWS, left_over, make_topic, missing, name_of
from support.waiting import eventually
from support.writing import write

pytestmark = pytest.mark.integration

SECOND = 1_000_000
PATIENCE = Patience(5.0)
OPEN = name_of(3)


def upload(store: Store, topic: Topic, *names: str) -> None:
    for name in names:
        store.put(paths.upload(topic.name, topic.uid, name), b"PAR1")


def uploads(store: Store, topic: Topic) -> set[str]:
    return {paths.upload_name(o.path) for o in store.list(paths.uploads_folder(topic.name, topic.uid))}


def refer(store: Store, topic: Topic, segment: str, first: int, name: str) -> None:
    """What a primary will write that adopts an upload: a chunk that stands for the rows of a file."""
    info = ChunkInfo(segment, first, ROWS, "w", f"r{first}", upload=f"{name}.parquet")
    store.put(paths.chunk(topic.name, topic.uid, segment, first), encode_chunk([], info, chunk_schema()))


@pytest.fixture
def topic(store: Store) -> Topic:
    """Three sealed segments of three chunks each, and an open one that nobody has written to."""
    return make_topic(store, 3, retention_age=1)


def test_an_old_upload_goes_and_a_young_one_stays(store: Store, topic: Topic):
    upload(store, topic, "a", "b")
    assert collect_uploads(store, topic, 3600 * SECOND) == 0
    assert uploads(store, topic) == {"a.parquet", "b.parquet"}
    assert collect_uploads(store, topic, 0) == 2
    assert not uploads(store, topic)
    assert not missing(store, topic)
    assert collect_strays(store, topic, 0).unknown == []


def test_what_a_chunk_names_stays_wherever_the_chunk_is(store: Store, topic: Topic):
    upload(store, topic, "a", "b", "c", "d")
    refer(store, topic, OPEN, 0, "a")
    refer(store, topic, OPEN, ROWS, "b")
    refer(store, topic, name_of(0), ROWS, "c")
    assert collect_uploads(store, topic, 0) == 1
    assert uploads(store, topic) == {"a.parquet", "b.parquet", "c.parquet"}


def test_it_goes_when_retention_has_deleted_what_named_it_and_not_before(store: Store, topic: Topic):
    upload(store, topic, "a")
    refer(store, topic, name_of(1), 0, "a")
    remove_expired(store, topic, [], {(HOLDER.incarnation, OPEN)}, 100 * SECOND, PATIENCE)
    assert collect_uploads(store, topic, 0) == 0, "somebody may be in the middle of reading it"
    delete_files(store, topic, 100 * SECOND, PATIENCE)
    assert collect_uploads(store, topic, 0) == 1
    assert not left_over(store, topic)


def test_nothing_goes_while_a_chunk_cannot_be_understood(store: Store, topic: Topic):
    upload(store, topic, "a")
    store.put(paths.chunk(topic.name, topic.uid, OPEN, 0), b"not a chunk")
    with pytest.raises(ChunkDamaged):
        collect_uploads(store, topic, 0)
    assert uploads(store, topic) == {"a.parquet"}


@pytest.mark.parametrize("unheard", [False, True])
@pytest.mark.parametrize("left", range(3))
def test_whoever_dies_while_collecting_leaves_what_is_named(store: Store, topic: Topic, left: int, unheard: bool):
    upload(store, topic, "a", "b", "c", "d")
    refer(store, topic, OPEN, 0, "b")
    with pytest.raises(Died):
        collect_uploads(cast(Store, DyingStore(store, left, unheard=unheard)), topic, 0)
    assert len(uploads(store, topic)) == 4 - left - unheard
    collect_uploads(store, topic, 0)
    assert uploads(store, topic) == {"b.parquet"}


def test_the_uploads_of_a_deleted_topic_go_with_its_data_alone(store: Store):
    for name, uid, delete_data in (("default/going", "u-1", True), ("default/staying", "u-2", False)):
        topic = make_topic(store, 1, uid=uid, name=name, delete_data=delete_data)
        upload(store, topic, "a")
        retire(store, topic.name, topic.uid, PATIENCE, now=0)
        assert collect_uploads(store, topic, 0) == 0, "its name is free: its data is not this pass's business"
        collect_deleted(store, Living((), (), (), sure=True), 1, 100, PATIENCE, set())
        assert uploads(store, topic) == (set() if delete_data else {"a.parquet"})


def test_a_leader_collects_old_uploads(new_leader: Callable[..., LeaderProcess], store: Store):
    leader = new_leader("--strays-stay", "1s", "--look-for-strays-every", "500ms", brokers=2).start()
    leader.wait_for_brokers()
    leader.apply(manifest())
    (segment,) = leader.settled()
    write(leader.locate(), segment, 10).close()
    current = read_current(store, "default/t")
    assert current is not None
    topic = read_topic(store, "default/t", current[0])
    assert topic is not None
    upload(store, topic, "a", "b")
    eventually(lambda: not uploads(store, topic), 20, what="nothing refers to them")
    told = eventually(lambda: leader.events("collect.uploads"), 5)
    assert sum(int(event["files"]) for event in told) == 2
    assert 'smq_leader_collected_files_total{kind="upload"} 2.0' in leader.http_get("/metrics")[1]
