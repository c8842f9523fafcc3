"""Deletes old files of segments that retention has removed.

Such files exist if a late PUT of a broker that was declared gone lands after retention deleted the segment's files, or
if a listing was too old to contain a file. A listing only finds candidates. What justifies a deletion is read after it:
the index says that retention removed the segment (its number is never used again), and neither the index nor the layout
contains it. A segment that is about to be opened is in the layout before a broker writes to it, so it is never deleted.

Files below ``_uploads/`` belong to ``uploads.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from smq_core.model.entities import Topic
from smq_core.reading.segment_dag import is_removed
from smq_operator.cleanup.retention import read_consistent
from smq_storage.catalog import paths
from smq_storage.object_store.store import ObjectMissing, Store


@dataclass(frozen=True, slots=True)
class OrphanedFiles:
    """``deleted``: the number of files by segment. ``unknown``: folders that are left for a person to check."""

    deleted: dict[str, int]
    unknown: list[str]


def collect_orphaned_files(store: Store, topic: Topic, before: datetime) -> OrphanedFiles:
    """Deletes files of removed segments that are older than ``before``, in the filer's time.

    Raises StoreUnavailable.
    """
    listed = [path.rsplit("/", 1)[-1] for path in store.folders(paths.topic_folder(topic.name, topic.uid))]
    names = [name for name in listed if not name.startswith("_")]
    known = read_consistent(store, topic)  # after the listing
    if known is None:
        return OrphanedFiles({}, [])
    referred = {entry.name for entry in known.index.entries} | {
        segment.name for segment in known.index.pending_deletion
    }
    deleted, unknown = {}, []
    for name in names:
        if name in referred or name in known.layout:
            continue
        if not is_removed(name, known.index.removed):
            unknown.append(name)
            continue
        count = sum(delete_if_older(store, o.path, before) for o in store.list(paths.segment_folder(*_at(topic), name)))
        if count:
            deleted[name] = count
    return OrphanedFiles(deleted, unknown)


def _at(topic: Topic) -> tuple[str, str]:
    return topic.name, topic.uid


def delete_if_older(store: Store, path: str, before: datetime) -> bool:
    """Deletes the object if it is not younger than that. False if it is younger, or missing."""
    try:
        if store.head(path).modified > before:
            return False
    except ObjectMissing:
        return False
    store.delete(path)
    return True
