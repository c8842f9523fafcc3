"""Uploads that no chunk names are collected when they are old; whatever a chunk names stays. On a real SeaweedFS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

import smq
from smq.producer import MIN_INLINE_BYTES
from smq_core.errors import CorruptChunk
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Phase, Topic
from smq_core.model.reference import Reference
from smq_operator.cleanup.deleted_topics import LiveTopics, collect_deleted_topics
from smq_operator.cleanup.document_scan import DocumentScan
from smq_operator.cleanup.orphaned_files import collect_orphaned_files
from smq_operator.cleanup.retention import delete_files, read_consistent, remove_expired
from smq_operator.cleanup.unreferenced_uploads import collect_unreferenced_uploads
from smq_operator.reconcile.topics.adoption import retire
from smq_storage.catalog import paths
from smq_storage.catalog.layouts import put_layout, read_layout
from smq_storage.catalog.sealed_index import name_file_list
from smq_storage.catalog.topics import read_current, read_topic
from smq_storage.chunks.parquet_codec import chunk_schema, encode_chunk
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from support.data.clocks import LONG_AGO, NO_GRACE, NOW, leader_at
from support.data.sealed_topic import (
    HOLDER,
    ROWS,
    all_written,
    leftover_files,
    make_topic,
    missing_files,
    read_stored_topic,
    segment_name,
)
from support.data.segment_writer import write
from support.fault_injection.crashing_store import CrashingStore, ProcessCrashed
from support.processes.leader import LeaderProcess, manifest
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

SECOND = 1_000_000
RETRY_POLICY = RetryPolicy(HANG_GUARD)
OPEN = segment_name(3)


def upload(store: Store, topic: Topic, *names: str) -> None:
    for name in names:
        store.put(paths.uploaded_file(topic.uid, f"{name}.parquet"), b"PAR1")


def uploads(store: Store, topic: Topic) -> set[str]:
    return {paths.upload_name(o.path) for o in store.list(paths.uploads_folder(topic.uid))}


def refer(store: Store, topic: Topic, segment: str, first: int, name: str) -> None:
    """A reference chunk, as a primary writes it; of a former release for even offsets."""
    reference = Reference(
        upload=f"{name}.parquet",
        etag="etag",
        first_row=0,
        rows=ROWS,
        bytes=1,
        partition_min=0,
        partition_max=0,
        timestamp_min=0,
        timestamp_max=0,
    )
    info = ChunkInfo(
        segment=segment, first=first, rows=ROWS, writer="w", nonce=f"r{first}", reference=reference, appended=1
    )
    if not first:
        info = replace(info, upload=f"{name}.parquet", reference=None)
    store.put(paths.chunk(topic.name, topic.uid, segment, first), encode_chunk([], info, chunk_schema()))


@pytest.fixture
def topic(store: Store) -> Topic:
    """Three sealed segments of three chunks each, and an open, empty one."""
    return make_topic(store, 3, retention_age=1)


def test_an_old_upload_goes_and_a_young_one_stays(store: Store, topic: Topic):
    upload(store, topic, "a", "b")
    assert collect_unreferenced_uploads(store, topic, LONG_AGO, all_written(store, topic)) == 0
    assert uploads(store, topic) == {"a.parquet", "b.parquet"}
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 2
    assert not uploads(store, topic)
    assert not missing_files(store, topic)
    assert collect_orphaned_files(store, topic, NOW).unknown == []


def test_what_must_stay_without_a_chunk_stays(store: Store, topic: Topic):
    upload(store, topic, "a", "b")
    assert (
        collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic), [lambda store, topic: ["a.parquet"]])
        == 1
    )
    assert uploads(store, topic) == {"a.parquet"}


def test_what_is_published_between_the_two_looks_stays(store: Store, topic: Topic):
    """What must stay without a chunk is read before the chunks, so one of the two readings has it."""
    upload(store, topic, "a")

    def publish_and_forget(store: Store, topic: Topic) -> list[str]:
        refer(store, topic, OPEN, 0, "a")
        return []

    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic), [publish_and_forget]) == 0
    assert uploads(store, topic) == {"a.parquet"}


def test_what_a_chunk_names_stays_wherever_the_chunk_is(store: Store, topic: Topic):
    upload(store, topic, "a", "b", "c", "d")
    refer(store, topic, OPEN, 0, "a")
    refer(store, topic, OPEN, ROWS, "b")
    refer(store, topic, segment_name(0), ROWS, "c")
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 1
    assert uploads(store, topic) == {"a.parquet", "b.parquet", "c.parquet"}


def test_what_a_chunk_names_stays_although_the_file_list_cannot_be_read(store: Store, topic: Topic):
    upload(store, topic, "a", "b")
    refer(store, topic, segment_name(0), ROWS, "a")
    name = paths.file_list_name(segment_name(0), 0)
    store.put(paths.file_list(topic.name, topic.uid, name), b"{")
    assert name_file_list(store, topic.name, topic.uid, segment_name(0), "", name, RETRY_POLICY)
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 1
    assert uploads(store, topic) == {"a.parquet"}


def test_nothing_goes_while_a_segment_waits_for_its_seal(store: Store, topic: Topic):
    upload(store, topic, "a")
    found = read_layout(store, topic.name, topic.uid)
    assert found is not None
    sealing = tuple(replace(segment, phase=Phase.SEALING) for segment in found[0].segments)
    put_layout(store, replace(found[0], segments=sealing, writer="test"), found[1], RETRY_POLICY)
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 0, (
        "a journal may have a reference to it"
    )


def test_it_goes_when_retention_has_deleted_what_named_it_and_not_before(store: Store, topic: Topic):
    upload(store, topic, "a")
    refer(store, topic, segment_name(1), 0, "a")
    remove_expired(
        store,
        topic,
        read_consistent(store, topic),
        [],
        {(HOLDER.incarnation, OPEN)},
        leader_at(100 * SECOND),
        RETRY_POLICY,
    )
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 0, "a client may still read it"
    delete_files(store, topic, leader_at(100 * SECOND), NO_GRACE, RETRY_POLICY)
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 1
    assert not leftover_files(store, topic)


def test_nothing_goes_while_a_chunk_cannot_be_understood(store: Store, topic: Topic):
    upload(store, topic, "a")
    store.put(paths.chunk(topic.name, topic.uid, OPEN, 0), b"not a chunk")
    with pytest.raises(CorruptChunk):
        collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic))
    assert uploads(store, topic) == {"a.parquet"}


@pytest.mark.parametrize("answer_lost", [False, True])
@pytest.mark.parametrize("left", range(3))
def test_a_crash_during_garbage_collection_leaves_referenced_files(
    store: Store, topic: Topic, left: int, answer_lost: bool
):
    upload(store, topic, "a", "b", "c", "d")
    refer(store, topic, OPEN, 0, "b")
    with pytest.raises(ProcessCrashed):
        collect_unreferenced_uploads(
            cast(Store, CrashingStore(store, left, answer_lost=answer_lost)), topic, NOW, all_written(store, topic)
        )
    assert len(uploads(store, topic)) == 4 - left - answer_lost
    collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic))
    assert uploads(store, topic) == {"b.parquet"}


def test_the_uploads_of_a_deleted_topic_go_with_its_data_alone(store: Store):
    for name, uid, delete_data in (("default/going", "u-1", True), ("default/staying", "u-2", False)):
        topic = make_topic(store, 1, uid=uid, name=name, delete_data=delete_data)
        upload(store, topic, "a")
        retire(store, topic.name, topic.uid, RETRY_POLICY, now=0)
        assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 0, (
            "its name is free: its data is not this pass's business"
        )
        collect_deleted_topics(
            store, LiveTopics((), (), (), complete=True), 1, leader_at(100), RETRY_POLICY, set(), DocumentScan()
        )
        assert uploads(store, topic) == (set() if delete_data else {"a.parquet"})


@pytest.mark.slow
def test_a_leader_collects_old_uploads(new_leader: Callable[..., LeaderProcess], store: Store):
    leader = new_leader("--unreferenced-uploads-grace", "1s", "--orphan-check-interval", "500ms", brokers=2).start()
    leader.wait_for_brokers()
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    write(leader.locate(), segment, 10).close()
    current = read_current(store, "default/t")
    assert current is not None
    topic = read_topic(store, "default/t", current[0])
    assert topic is not None
    upload(store, topic, "a", "b")
    eventually(lambda: not uploads(store, topic), what="nothing refers to them")
    eventually(lambda: sum(int(event["files"]) for event in leader.events("uploads.deleted")) == 2)
    eventually(lambda: 'smq_leader_deleted_files_total{kind="upload"} 2.0' in leader.http_get("/metrics")[1])


@pytest.mark.slow
def test_a_large_value_whose_message_waits_for_its_chunk_stays(
    new_leader: Callable[..., LeaderProcess], store: Store
) -> None:
    # Published within half of it, in whole seconds, also on a machine that is busy.
    flags = ("--unreferenced-uploads-grace", "20s", "--orphan-check-interval", "100ms")
    leader = new_leader(*flags, brokers=2).start()
    leader.wait_for_brokers()
    for name in ("t", "other"):
        leader.apply(manifest(name, flush={"interval": "1h", "maxInterval": "1h"}))
        leader.wait_until_open(name)
    other = read_stored_topic(store, "default/other")
    with smq.connect(leader.address) as client, client.producer("t", max_inline_bytes=MIN_INLINE_BYTES) as producer:
        value = bytes(2 * MIN_INLINE_BYTES)
        producer.send(value).result(HANG_GUARD)
        for name in ("first", "second"):  # one pass after another, and the value is older than the first upload
            upload(store, other, name)
            eventually(lambda: not uploads(store, other), what="nothing refers to it")
        (segment,) = client.admin().segments("t")
        client.admin().roll("t", segment.name)
        with client.consumer("t", start="earliest") as consumer:
            batch = eventually(lambda: consumer.poll(1.0))
        assert batch.table.column("value").to_pylist() == [value]
