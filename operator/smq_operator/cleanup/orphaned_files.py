"""Deletes old files of segments that retention has removed.

Such files exist if a late PUT of a broker that was declared gone lands after retention deleted the segment's files, or
if a listing was too old to contain a file. A listing only finds candidates. What justifies a deletion is read after it:
the index says that retention removed the segment (its number is never used again), and neither the index nor the layout
contains it. A segment that is about to be opened is in the layout before a broker writes to it, so it is never deleted.

A file list is orphaned if its segment was removed, or if the index names another one of the same or a later version.
The version that the index names only rises, so whoever wrote the orphaned one cannot name it any more. One that the
index may still name is kept, however old it is. One that was replaced is kept while there is a reader's pin: nothing
says whether the pin's reader read the index before it was replaced.

Files below ``_uploads/`` belong to ``uploads.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from smq_core.model.entities import Topic
from smq_core.reading.segment_dag import is_removed
from smq_operator.cleanup.reader_pins import has_pins
from smq_operator.cleanup.retention import ConsistentState, read_consistent
from smq_storage.catalog import paths
from smq_storage.object_store.store import ObjectMissing, Store


@dataclass(frozen=True, slots=True)
class OrphanedFiles:
    """``deleted``: the number of files by segment. ``unknown``: folders that are left for a person to check.
    ``file_lists``: the number of file lists that were deleted. ``named``: those that the index names, by segment.
    """

    deleted: dict[str, int]
    unknown: list[str]
    file_lists: int = 0
    named: Mapping[str, str] = field(default_factory=dict)


def collect_orphaned_files(store: Store, topic: Topic, before: datetime) -> OrphanedFiles:
    """Deletes files of removed segments, and file lists that are not named, older than ``before`` in the filer's time.

    Raises StoreUnavailable.
    """
    names = [name for name in _folders(store, paths.topic_folder(*_at(topic))) if not name.startswith("_")]
    compacted = _folders(store, paths.compacted_folders(*_at(topic)))
    file_lists = [o.path for o in store.list(paths.file_lists_folder(*_at(topic)))]
    known = read_consistent(store, topic)  # after the listings
    if known is None:
        return OrphanedFiles({}, [])
    referred = {entry.name for entry in known.index.entries} | {
        segment.name for segment in known.index.pending_deletion
    }
    deleted, unknown = {}, []
    for name in dict.fromkeys([*names, *compacted]):
        if name in referred or name in known.layout:
            continue
        if not is_removed(name, known.index.removed):
            unknown.append(name)
            continue
        folders = paths.segment_folder(*_at(topic), name), paths.compacted_folder(*_at(topic), name)
        count = sum(delete_if_older(store, o.path, before) for folder in folders for o in store.list(folder))
        if count:
            deleted[name] = count
    orphaned = [path for path in file_lists if _is_orphaned_file_list(path, known)]
    if orphaned and has_pins(store, topic):
        orphaned = [path for path in orphaned if is_removed(paths.file_list_segment(path) or "", known.index.removed)]
    named = {entry.name: entry.file_list for entry in known.index.entries}
    return OrphanedFiles(deleted, unknown, sum(delete_if_older(store, path, before) for path in orphaned), named)


def _is_orphaned_file_list(path: str, known: ConsistentState) -> bool:
    """Whether no index can name this file list any more."""
    segment, version = paths.file_list_segment(path), paths.file_list_version(path)
    if segment is None or version is None or segment in known.layout:
        return False
    for entry in known.index.entries:
        if entry.name == segment:
            named = paths.file_list_version(entry.file_list)
            return named is not None and version <= named and path.rsplit("/", 1)[-1] != entry.file_list
    if any(removed.name == segment for removed in known.index.pending_deletion):
        return False  # it says which files are to be deleted
    return is_removed(segment, known.index.removed)


def _folders(store: Store, path: str) -> list[str]:
    """The names of the folders in this one."""
    return [found.rsplit("/", 1)[-1] for found in store.folders(path)]


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
