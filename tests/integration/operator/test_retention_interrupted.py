"""Whoever carries out retention may die at any write or deletion: nothing that is listed is missing, and the next one
leaves nothing behind. On a real SeaweedFS, at every effect there is."""

from __future__ import annotations

import itertools
from typing import cast

import pytest

from smq_core.model.entities import Topic
from smq_core.reconcile.retention import GroupProgress
from smq_operator.cleanup.deleted_topics import LiveTopics, collect_deleted_topics
from smq_operator.cleanup.document_scan import DocumentScan
from smq_operator.cleanup.retention import delete_files, read_consistent, remove_expired
from smq_operator.reconcile.topics.adoption import retire
from smq_storage.catalog import sealed_index
from smq_storage.catalog.deleted_topics import list_deleted_topics
from smq_storage.catalog.topics import read_current
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from support.data.clocks import NO_GRACE, leader_at
from support.data.sealed_topic import (
    HOLDER,
    leftover_files,
    make_topic,
    missing_files,
    segment_name,
    segments_with_files,
)
from support.fault_injection.crashing_store import CrashingStore, ProcessCrashed
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration

SECOND = 1_000_000
BEGUN = {(HOLDER.incarnation, segment_name(4))}
RETRY_POLICY = RetryPolicy(HANG_GUARD)


def run_retention(store: Store, topic: Topic, groups: list[GroupProgress]) -> None:
    """One pass of a leader at 4 s, and one later that deletes files."""
    remove_expired(store, topic, read_consistent(store, topic), groups, BEGUN, leader_at(4 * SECOND), RETRY_POLICY)
    delete_files(store, topic, leader_at(100 * SECOND), NO_GRACE, RETRY_POLICY)


@pytest.mark.slow
@pytest.mark.parametrize("answer_lost", [False, True])
def test_retention_that_dies_at_any_effect_is_finished_by_the_next_leader(seaweed, prefix, answer_lost):
    groups = [GroupProgress("g", {segment_name(3): 2})]
    stopped = 0
    for left in itertools.count():
        store = seaweed.store(f"{prefix}-{left}")
        topic = make_topic(store, 4, retention_age=SECOND + 1)
        try:
            run_retention(cast(Store, CrashingStore(store, left, answer_lost=answer_lost)), topic, groups)
            finished = True
        except ProcessCrashed:
            stopped, finished = stopped + 1, False
        assert not missing_files(store, topic), f"after {left} effects"
        run_retention(store, topic, groups)
        assert not missing_files(store, topic)
        assert not leftover_files(store, topic), f"after {left} effects"
        known = sealed_index.load(store, topic.name, topic.uid)
        assert [entry.name for entry in known.entries] == [segment_name(2), segment_name(3)]
        assert known.removed == ((0, 2),)
        assert not known.pending_deletion
        if finished:
            break
    assert stopped == 12, "one write of the index, four files and the file list of each of two segments, one more write"


@pytest.mark.slow
@pytest.mark.parametrize("answer_lost", [False, True])
def test_a_deletion_that_dies_at_any_effect_is_finished_by_the_next_leader(seaweed, prefix, answer_lost):
    stopped = 0
    for left in itertools.count():
        store = seaweed.store(f"{prefix}-{left}")
        topic = make_topic(store, 1, delete_data=True)
        kept = make_topic(store, 1, uid="uid-kept", name="default/kept", delete_data=True)
        dying = cast(Store, CrashingStore(store, left, answer_lost=answer_lost))
        nothing = LiveTopics((), (), (), complete=True)
        try:
            retire(dying, topic.name, topic.uid, RETRY_POLICY, now=0)
            collect_deleted_topics(dying, nothing, 5, leader_at(6), RETRY_POLICY, set(), DocumentScan())
            finished = True
        except ProcessCrashed:
            stopped, finished = stopped + 1, False
        # The client got no response, so it repeats the deletion; the next leader follows what is written.
        retire(store, topic.name, topic.uid, RETRY_POLICY, now=0)
        for _ in range(2):
            collect_deleted_topics(store, nothing, 5, leader_at(6), RETRY_POLICY, set(), DocumentScan())
        assert not segments_with_files(store, topic), f"after {left} effects"
        assert [o.path for o in store.list("default/t")] == ["default/t/_current.json"]
        assert read_current(store, topic.name)[0] == ""
        assert not missing_files(store, kept)
        assert list_deleted_topics(store) == [topic.uid], "it stays for what lands late"
        collect_deleted_topics(store, nothing, 5, leader_at(4000 * SECOND), RETRY_POLICY, set(), DocumentScan())
        assert list_deleted_topics(store) == []
        if finished:
            break
    assert stopped == 9, "the record, the name, four files of the segment, its topic, index and layout"
