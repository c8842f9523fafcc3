"""What becomes of a deleted topic's data: nothing with policy Retain; with Delete it goes, some time later, by its uid.

``_deleted/<uid>.json`` says that a topic was deleted, when, and with which policy; it is written before the name is
free for another topic. Whoever leads goes by these records alone. Before anything is deleted under a uid the filer must
say that the uid is not the living one of its name; while it is (the topic's manifest vanished, and nobody asked for its
deletion) the name is taken from it first, by compare-and-swap: a manifest that comes back later makes a new topic.

A blank ``current.json`` stays for ever: one small file for each name that ever was. It must: whoever makes a topic of
that name again replaces it on condition of its etag, and the store's client can delete only without a condition. A
deletion that is decided on before that and lands after it would take the name from a topic that lives, and its data
with it; no age of the file makes that impossible.

These functions block on the store.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from smq_core.errors import Conflict
from smq_core.model import SECOND
from smq_operator.lifecycle import note_deletion, retire
from smq_storage import paths
from smq_storage.conditional import Patience
from smq_storage.retired import Retired, list_retired, read_retired, withdraw_retired
from smq_storage.store import Store
from smq_storage.topics import put_current, read_current, read_living

LATECOMERS = 3600 * SECOND
"""So long a record stays after the data is gone: a PUT that lands late is deleted too."""


@dataclass(frozen=True, slots=True)
class Living:
    """What the leader knows of topics that live. Reading it again is cheap; nothing is deleted because of it alone.

    ``held`` are the uids of which a broker that is not proved dead still holds segments. ``sure``: nothing keeps the
    leader from knowing which topics are wished.
    """

    uids: Collection[str]
    names: Collection[str]
    held: Collection[str]
    sure: bool


@dataclass(frozen=True, slots=True)
class Collected:
    """One deleted topic whose data was deleted: how many files went."""

    topic: str
    uid: str
    files: int


def collect_deleted(
    store: Store, living: Living, stay: int, now: int, patience: Patience, kept: set[str]
) -> list[Collected]:
    """Deletes the data of topics that were deleted more than ``stay`` microseconds ago with policy Delete.

    ``kept`` remembers the uids whose policy is Retain, so that they are not read again. Raises StoreUnavailable; then
    the next call goes on.
    """
    done = []
    for uid in list_retired(store):
        if uid in kept and uid not in living.uids:
            continue
        retired = read_retired(store, uid)
        if retired is None:
            continue
        if uid in living.uids:
            withdraw_retired(store, uid)
        elif not retired.delete_data:
            kept.add(uid)
        elif now - retired.retired_at > stay and _may_go(store, retired, living, patience):
            files = delete_topic(store, retired.topic, uid)
            if files:
                done.append(Collected(retired.topic, uid, files))
            elif now - retired.retired_at > stay + LATECOMERS:
                withdraw_retired(store, uid)
    return done


def _may_go(store: Store, retired: Retired, living: Living, patience: Patience) -> bool:
    current = read_current(store, retired.topic)
    if current is not None and current[0] == retired.uid:
        if retired.topic in living.names or not living.sure:
            return False
        try:
            put_current(store, retired.topic, "", current[1], patience)
        except Conflict:
            return False
    return retired.uid not in living.held


def delete_topic(store: Store, topic: str, uid: str) -> int:
    """Deletes everything under the uid: messages first, then what tells of them. Returns how many files went."""
    folder = paths.topic_folder(topic, uid)
    files = [o.path for o in store.list(folder)]
    for path in sorted(files, key=lambda path: (paths.first_offset(path) is None, path)):
        store.delete(path)
    return len(files)


def note_vanished(store: Store, living: Living, owner: str, now: int, patience: Patience) -> list[str]:
    """Writes down topics of this world that were deleted while nobody led. Returns their names.

    Only topics that say that this world (``owner``) wished them: those of other folders or clusters that share the
    filer are none of its business.
    """
    if not owner or not living.sure:
        return []
    found = []
    for namespace in store.folders(""):
        if namespace.startswith("_"):
            continue
        for topic in store.folders(namespace):
            current = read_living(store, topic) if topic not in living.names else None
            if current is None or current.owner != owner:
                continue
            if read_retired(store, current.uid) is None:
                note_deletion(store, topic, current.uid, patience, now)
                found.append(topic)
            if current.given:
                retire(store, topic, current.uid, patience, now)  # it never comes back: its segments are sealed now
    return found
