"""Files of segments that nothing refers to: collected when they are old, and when the filer says why they may be.

How they come about: a PUT of a broker that everybody had given up lands after retention deleted the segment, or a
listing was too old to show a file. A listing only proposes; what justifies a deletion is read after it: the index says
that retention removed the segment (its number is never used again), and neither the index nor the layout has it. A
segment that is about to be opened is in the layout before anyone writes to it, so it is never among those.

Files below ``_uploads/`` are ``collect_uploads.py``'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from smq_core.dag import is_removed
from smq_core.model import Topic
from smq_operator.retain import truth
from smq_storage import paths
from smq_storage.store import ObjectMissing, Store

FOLDERS_OF_THE_TOPIC = ("index",)


@dataclass(frozen=True, slots=True)
class Strays:
    """``deleted`` files of each segment, and folders that are ``unknown``: they are left for a person to look at."""

    deleted: dict[str, int]
    unknown: list[str]


def collect_strays(store: Store, topic: Topic, stay: int) -> Strays:
    """Deletes files older than ``stay`` (microseconds) of segments that retention removed. Raises StoreUnavailable."""
    listed = [path.rsplit("/", 1)[-1] for path in store.folders(paths.topic_folder(topic.name, topic.uid))]
    names = [name for name in listed if not name.startswith("_") and name not in FOLDERS_OF_THE_TOPIC]
    known = truth(store, topic)  # after the listing
    if known is None:
        return Strays({}, [])
    referred = {entry.name for entry in known.index.entries} | {segment.name for segment in known.index.deleting}
    deleted, unknown = {}, []
    before = datetime.now(UTC) - timedelta(microseconds=stay)
    for name in names:
        if name in referred or name in known.layout:
            continue
        if not is_removed(name, known.index.removed):
            unknown.append(name)
            continue
        count = sum(delete_old(store, o.path, before) for o in store.list(paths.segment_folder(*_at(topic), name)))
        if count:
            deleted[name] = count
    return Strays(deleted, unknown)


def _at(topic: Topic) -> tuple[str, str]:
    return topic.name, topic.uid


def delete_old(store: Store, path: str, before: datetime) -> bool:
    """Deletes the object when it is not younger than that; False when it is, or when there is none."""
    try:
        if store.head(path).modified > before:
            return False
    except ObjectMissing:
        return False
    store.delete(path)
    return True
