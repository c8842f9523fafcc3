"""What is collected, and what never is, over a store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from smq_core.model.entities import TopicSpec
from smq_core.reconcile.retention import GroupProgress
from smq_operator.cleanup.deleted_topics import LiveTopics, collect_deleted_topics, record_vanished_topics
from smq_operator.cleanup.document_scan import DocumentScan
from smq_operator.cleanup.orphaned_files import collect_orphaned_files
from smq_operator.cleanup.retention import delete_files, read_consistent, remove_expired
from smq_operator.local.folder import folder_id
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics.adoption import adopt, record_deletion, retire
from smq_storage.catalog import layouts, paths, sealed_index
from smq_storage.catalog.deleted_topics import list_deleted_topics, read_deleted_topic
from smq_storage.catalog.topics import read_current
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import ObjectInfo, Store, open_store
from support.data.clocks import LONG_AGO, NO_GRACE, NOW, leader_at
from support.data.sealed_topic import (
    HOLDER,
    leftover_files,
    make_topic,
    missing_files,
    segment_name,
    segments_with_files,
    write_segment,
)
from support.fault_injection.crashing_store import CrashingStore, ProcessCrashed

RETRY_POLICY = RetryPolicy(2.0)
SECOND = 1_000_000
NOBODY = LiveTopics((), (), (), complete=True)
BEGUN = {(HOLDER.incarnation, segment_name(3))}


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def removed(store: Store) -> list[str]:
    return [segment.name for segment in sealed_index.load(store, "default/t", "uid-1").removed_segments]


# ---- retention


def test_the_predecessor_of_a_segment_that_has_still_to_open_stays(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    remove_expired(store, topic, read_consistent(store, topic), [], set(), leader_at(100 * SECOND), RETRY_POLICY)
    assert removed(store) == [segment_name(0), segment_name(1)]
    remove_expired(store, topic, read_consistent(store, topic), [], BEGUN, leader_at(100 * SECOND), RETRY_POLICY)
    assert removed(store) == [segment_name(0), segment_name(1), segment_name(2)]


def test_a_layout_that_was_read_too_old_removes_nothing(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    found = layouts.read_layout(store, topic.name, topic.uid)
    assert found is not None
    (living,) = found[0].segments
    first = replace(living, name=segment_name(0), number=0, predecessors=())
    old = replace(found[0], segments=(first,), next_number=1)
    layouts.put_layout(store, old, found[1], RETRY_POLICY)
    assert read_consistent(store, topic) is None
    remove_expired(store, topic, read_consistent(store, topic), [], BEGUN, leader_at(100 * SECOND), RETRY_POLICY)
    assert removed(store) == []


def test_files_stay_for_a_while_after_their_segment_was_removed(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    remove_expired(store, topic, read_consistent(store, topic), [], BEGUN, leader_at(100 * SECOND), RETRY_POLICY)
    assert delete_files(store, topic, leader_at(99 * SECOND), NO_GRACE, RETRY_POLICY) == ([], 0)
    assert len(leftover_files(store, topic)) == 3
    assert delete_files(store, topic, leader_at(100 * SECOND), NO_GRACE, RETRY_POLICY)[1] == 12
    assert not leftover_files(store, topic)
    assert delete_files(store, topic, leader_at(200 * SECOND), NO_GRACE, RETRY_POLICY) == ([], 0)


class StoreWithEmptyListings:
    """A store whose listings show nothing yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(())


@pytest.mark.parametrize("left", range(8))
def test_files_missing_from_listings_are_deleted_after_a_crash_too(store: Store, left: int) -> None:
    topic = make_topic(store, 2, retention_age=1)
    begun = {(HOLDER.incarnation, segment_name(2))}
    remove_expired(store, topic, read_consistent(store, topic), [], begun, leader_at(100 * SECOND), RETRY_POLICY)
    with pytest.raises(ProcessCrashed):
        delete_files(
            cast(Store, CrashingStore(store, left, answer_lost=False)),
            topic,
            leader_at(100 * SECOND),
            NO_GRACE,
            RETRY_POLICY,
        )
    assert len(leftover_files(store, topic)) == (2 if left < 4 else 1)
    delete_files(cast(Store, StoreWithEmptyListings(store)), topic, leader_at(100 * SECOND), NO_GRACE, RETRY_POLICY)
    assert not leftover_files(store, topic)


def test_groups_that_lose_something_are_written_down(store: Store) -> None:
    topic = make_topic(store, 2, retention_age=1, retention_keeps_unread=False)
    remove_expired(
        store,
        topic,
        read_consistent(store, topic),
        [GroupProgress("g", {segment_name(1): 7})],
        {(HOLDER.incarnation, segment_name(2))},
        leader_at(9**15),
        RETRY_POLICY,
    )
    assert [segment.unread for segment in sealed_index.load(store, topic.name, topic.uid).removed_segments] == [
        {},
        {"g": 7},
    ]


def test_a_leader_of_an_earlier_life_of_the_name_removes_nothing(store: Store) -> None:
    old = make_topic(store, 3, retention_age=1)
    make_topic(store, 3, uid="uid-2", retention_age=1)
    remove_expired(store, old, read_consistent(store, old), [], BEGUN, leader_at(100 * SECOND), RETRY_POLICY)
    assert removed(store) == []


def test_an_index_that_is_behind_the_layout_removes_nothing(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    page = paths.index_page(topic.name, topic.uid, 0)
    store.put(page, b'{"entries": []}')
    assert read_consistent(store, topic) is None
    remove_expired(store, topic, read_consistent(store, topic), [], BEGUN, leader_at(100 * SECOND), RETRY_POLICY)
    assert removed(store) == []
    assert collect_orphaned_files(store, topic, NOW).deleted == {}
    assert segments_with_files(store, topic).keys() == {segment_name(i) for i in range(3)}


# ---- orphaned files


def test_a_file_that_lands_after_its_segment_was_deleted_is_collected_when_it_is_old(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    remove_expired(store, topic, read_consistent(store, topic), [], BEGUN, leader_at(100 * SECOND), RETRY_POLICY)
    delete_files(store, topic, leader_at(100 * SECOND), NO_GRACE, RETRY_POLICY)
    write_segment(store, topic, segment_name(1))
    assert collect_orphaned_files(store, topic, LONG_AGO).deleted == {}
    assert collect_orphaned_files(store, topic, NOW).deleted == {segment_name(1): 4}
    assert not leftover_files(store, topic)
    assert not missing_files(store, topic)


def test_referenced_and_unknown_files_are_not_orphaned(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    groups = [GroupProgress("g", {segment_name(1): 2})]
    remove_expired(store, topic, read_consistent(store, topic), groups, BEGUN, leader_at(100 * SECOND), RETRY_POLICY)
    write_segment(store, topic, segment_name(3))  # the open one
    write_segment(store, topic, segment_name(4))  # one that the layout, read after the listing, does not have yet
    store.put(paths.uploaded_file(topic.uid, "u.parquet"), b"x")
    before = {o.path for o in store.list("default")}
    found = collect_orphaned_files(store, topic, NOW)
    assert (found.deleted, found.unknown) == ({}, [segment_name(4)])
    assert {o.path for o in store.list("default")} == before


# ---- deleted topics


def test_the_data_of_a_deleted_topic_waits_and_goes_by_its_policy(store: Store) -> None:
    going = make_topic(store, 1, delete_data=True)
    staying = make_topic(store, 1, uid="uid-2", name="default/u")
    for topic in (going, staying):
        retire(store, topic.name, topic.uid, RETRY_POLICY, now=100)
    assert collect_deleted_topics(store, NOBODY, 50, leader_at(150), RETRY_POLICY, set(), DocumentScan()) == []
    assert not missing_files(store, going)
    (done,) = collect_deleted_topics(store, NOBODY, 50, leader_at(151), RETRY_POLICY, set(), DocumentScan())
    assert (done.topic, done.uid) == (going.name, going.uid)
    assert not list(store.list(paths.topic_folder(going.name, going.uid)))
    assert not missing_files(store, staying)


def test_data_that_brokers_still_hold_segments_of_waits_for_them(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    retire(store, topic.name, topic.uid, RETRY_POLICY, now=0)
    assert (
        collect_deleted_topics(
            store,
            LiveTopics((), (), {topic.uid}, complete=True),
            1,
            leader_at(100),
            RETRY_POLICY,
            set(),
            DocumentScan(),
        )
        == []
    )
    assert not missing_files(store, topic)


def test_what_lands_late_under_a_deleted_uid_is_deleted_too(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    retire(store, topic.name, topic.uid, RETRY_POLICY, now=0)
    collect_deleted_topics(store, NOBODY, 1, leader_at(100), RETRY_POLICY, set(), DocumentScan())
    write_segment(store, topic, segment_name(7))
    collect_deleted_topics(store, NOBODY, 1, leader_at(200), RETRY_POLICY, set(), DocumentScan())
    assert not list(store.list(paths.topic_folder(topic.name, topic.uid)))
    collect_deleted_topics(store, NOBODY, 1, leader_at(4000 * SECOND), RETRY_POLICY, set(), DocumentScan())
    assert list_deleted_topics(store) == []


def test_a_manifest_that_comes_back_in_time_has_its_data_back(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    record_deletion(store, topic.name, topic.uid, RETRY_POLICY, 0)  # its file vanished
    back = adopt(store, DesiredTopic(name=topic.name, spec=topic.spec), RETRY_POLICY, 5).topic
    assert back.uid == topic.uid
    assert list_deleted_topics(store) == []
    assert (
        collect_deleted_topics(
            store,
            LiveTopics({topic.uid}, {topic.name}, (), complete=True),
            1,
            10**12,
            RETRY_POLICY,
            set(),
            DocumentScan(),
        )
        == []
    )
    assert not missing_files(store, topic)


def test_a_manifest_that_comes_back_too_late_makes_a_new_topic(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    record_deletion(store, topic.name, topic.uid, RETRY_POLICY, 0)
    assert collect_deleted_topics(store, NOBODY, 1, leader_at(100), RETRY_POLICY, set(), DocumentScan())
    back = adopt(store, DesiredTopic(name=topic.name, spec=topic.spec), RETRY_POLICY, 200).topic
    assert back.uid != topic.uid


@pytest.mark.parametrize("names, is_complete", [({"default/t"}, True), (set(), False)])
def test_the_current_uid_of_a_name_is_kept_while_its_topic_may_be_desired(
    store: Store, names: set[str], is_complete: bool
) -> None:
    topic = make_topic(store, 1, delete_data=True)
    record_deletion(store, topic.name, topic.uid, RETRY_POLICY, 0)
    assert (
        collect_deleted_topics(
            store, LiveTopics((), names, (), is_complete), 1, leader_at(100), RETRY_POLICY, set(), DocumentScan()
        )
        == []
    )
    assert read_current(store, topic.name)[0] == topic.uid  # type: ignore[index]
    assert not missing_files(store, topic)


def test_another_resource_of_the_name_retires_the_earlier_one(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    adopt(store, DesiredTopic(name=topic.name, spec=topic.spec, uid="uid-2"), RETRY_POLICY, 70)
    noted = read_deleted_topic(store, topic.uid)
    assert noted is not None
    assert (noted.topic, noted.deleted_at, noted.delete_data) == (topic.name, 70, True)


def test_vanished_topics_are_found_only_by_their_own_platform(store: Store) -> None:
    mine = adopt(
        store, DesiredTopic(name="default/mine", spec=TopicSpec(delete_data=True)), RETRY_POLICY, 0, "here"
    ).topic
    adopt(store, DesiredTopic(name="default/other", spec=TopicSpec(delete_data=True)), RETRY_POLICY, 0, "there")
    adopt(store, DesiredTopic(name="default/nobodys", spec=TopicSpec(delete_data=True)), RETRY_POLICY, 0)
    assert (
        record_vanished_topics(
            store, LiveTopics((), {"default/mine"}, (), complete=True), "here", 9, RETRY_POLICY, DocumentScan()
        )
        == []
    )
    assert (
        record_vanished_topics(store, LiveTopics((), (), (), complete=False), "here", 9, RETRY_POLICY, DocumentScan())
        == []
    )
    assert record_vanished_topics(store, NOBODY, "", 9, RETRY_POLICY, DocumentScan()) == []
    assert record_vanished_topics(store, NOBODY, "here", 9, RETRY_POLICY, DocumentScan()) == ["default/mine"]
    assert list_deleted_topics(store) == [mine.uid]
    assert record_vanished_topics(store, NOBODY, "here", 99, RETRY_POLICY, DocumentScan()) == []


def test_a_folder_keeps_its_id(tmp_path: Path) -> None:
    first = folder_id(tmp_path)
    assert folder_id(tmp_path) == first
    other = tmp_path / "other"
    other.mkdir()
    assert folder_id(other) != first
