"""Deletes the data of deleted topics: never with policy Retain; with Delete by uid, after a grace period.

``_deleted/<uid>.json`` records that a topic was deleted, when, and with which policy. It is written before the name is
free for another topic, and every leader acts by these records alone. Before it deletes anything under a uid, the leader
reads from the filer that the uid is not the current one of its name. If it is (the topic's manifest vanished, and no
deletion was requested), the leader first frees the name by compare-and-swap, so that a manifest that returns later
makes a new topic.

A blank ``_current.json`` stays forever, one small file for each name that was ever used. The store's client cannot
delete conditionally. A delayed DELETE could therefore remove the ``_current.json`` of a newer topic of the same name,
and that topic would lose its name and its data, however old the file is. So the blank file is kept. The next topic of
that name replaces it, on condition of its etag.

These functions block on the store.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from smq_core.errors import Conflict
from smq_core.model.entities import SECOND
from smq_operator.cleanup.document_scan import DocumentScan
from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.reconcile.topics.adoption import record_deletion, retire
from smq_storage.catalog import paths
from smq_storage.catalog.deleted_topics import (
    DeletedTopic,
    list_deleted_topics,
    read_deleted_topic,
    remove_deleted_topic,
)
from smq_storage.catalog.filer_time import modified_at_or_none
from smq_storage.catalog.topics import put_current, read_current, read_current_topic, topics_with_folders
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store

# How long a record stays after the data is deleted, so that a PUT that lands late is deleted too.
LATE_WRITE_GRACE_US = 3600 * SECOND


@dataclass(frozen=True, slots=True)
class LiveTopics:
    """The topics that exist according to the leader.

    ``hosted_uids``: the uids of topics whose segments a broker that is not gone still hosts. ``complete``: every
    manifest is valid, so no desired topic is missing.
    """

    uids: Collection[str]
    names: Collection[str]
    hosted_uids: Collection[str]
    complete: bool


@dataclass(frozen=True, slots=True)
class CollectedTopic:
    """One deleted topic whose data was deleted, and the number of its files."""

    topic: str
    uid: str
    files: int


def collect_deleted_topics(
    store: Store,
    live_topics: LiveTopics,
    grace_us: int,
    clocks: ClockReading,
    retry_policy: RetryPolicy,
    retained_uids: set[str],
    scan: DocumentScan,
) -> list[CollectedTopic]:
    """Deletes the data of topics that were deleted more than ``grace_us`` microseconds ago with policy Delete.

    Adds to ``retained_uids`` the uids whose policy is Retain, so that they are not read again. ``scan`` takes the
    records that cannot be read or carried out; they do not affect the others. Raises StoreUnavailable if the listing
    fails.
    """
    done = []
    for uid in list_deleted_topics(store):
        if uid in retained_uids and uid not in live_topics.uids:
            continue
        with scan.document(paths.deleted_topic(uid)):
            deleted_topic = read_deleted_topic(store, uid)
            if deleted_topic is None:
                continue
            if uid in live_topics.uids:
                remove_deleted_topic(store, uid)
                continue
            if not deleted_topic.delete_data:
                retained_uids.add(uid)
                continue
            is_due = _age(store, deleted_topic, clocks, grace_us) > grace_us
            if is_due and _may_delete(store, deleted_topic, live_topics, retry_policy):
                files = delete_topic(store, deleted_topic.topic, uid)
                if files:
                    done.append(CollectedTopic(deleted_topic.topic, uid, files))
                elif clocks.leader - deleted_topic.deleted_at > grace_us + LATE_WRITE_GRACE_US:
                    remove_deleted_topic(store, uid)
    return done


def _age(store: Store, deleted_topic: DeletedTopic, clocks: ClockReading, limit_us: int) -> int:
    """How long ago it was deleted, by the clock that says less. The filer is asked only if the leader's exceeds it."""
    age = clocks.leader - deleted_topic.deleted_at
    if age <= limit_us:
        return age
    return clocks.age(deleted_topic.deleted_at, modified_at_or_none(store, paths.deleted_topic(deleted_topic.uid)))


def _may_delete(store: Store, deleted_topic: DeletedTopic, live_topics: LiveTopics, retry_policy: RetryPolicy) -> bool:
    current = read_current(store, deleted_topic.topic)
    if current is not None and current[0] == deleted_topic.uid:
        if deleted_topic.topic in live_topics.names or not live_topics.complete:
            return False
        try:
            put_current(store, deleted_topic.topic, "", current[1], retry_policy)
        except Conflict:
            return False
    return deleted_topic.uid not in live_topics.hosted_uids


def delete_topic(store: Store, topic: str, uid: str) -> int:
    """Deletes everything under the uid, and can be repeated, because the record stays. Returns the number of files."""
    folders = paths.topic_folder(topic, uid), paths.uploads_folder(uid), paths.large_values_folder(uid)
    files = [o.path for folder in folders for o in store.list(folder)]
    for path in files:
        store.delete(path)
    return len(files)


def record_vanished_topics(
    store: Store, live_topics: LiveTopics, owner: str, now: int, retry_policy: RetryPolicy, scan: DocumentScan
) -> list[str]:
    """Records the deletion of topics that were deleted while no leader ran. Returns their names.

    Only topics that name this platform (``owner``) count, because other folders or clusters may share the filer.
    ``scan`` takes what cannot be read of a topic; it does not affect the others.
    """
    if not owner or not live_topics.complete:
        return []
    found = []
    for topic in topics_with_folders(store):
        if topic in live_topics.names:
            continue
        with scan.document(paths.current(topic)):
            current = read_current_topic(store, topic)
            if current is None or current.owner != owner:
                continue
            if read_deleted_topic(store, current.uid) is None:
                record_deletion(store, topic, current.uid, retry_policy, now)
                found.append(topic)
            if current.uid_is_external:  # it never returns, so its segments are sealed now
                retire(store, topic, current.uid, retry_policy, now)
    return found
