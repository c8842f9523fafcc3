"""Carries out retention for one topic: the index entry goes first, the files later. These functions block on the store.

Whoever does this may be stopped anywhere, and may be a leader that was replaced and does not know it:

* Whatever is removed is decided again from what the filer says at that moment: index, layout, whose the name is.
* One compare-and-swap moves an entry out of the index and notes that its files are to be deleted. Before it nothing has
  happened; after it whoever leads next finds the note.
* Files go from the end of the chain to its beginning, so that what is left is always found by walking from offset 0.
* The note goes when the files are gone. All of it can be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from smq_core.dag import index_is_behind, layout_is_behind
from smq_core.model import Layout, RemovedSegment, Topic
from smq_core.retention import GroupState, Removal, Verdict, expired
from smq_storage import index, layouts, paths
from smq_storage.chain import Chain
from smq_storage.conditional import Patience
from smq_storage.index import Index
from smq_storage.store import Store
from smq_storage.topics import read_current

MAX_PER_PASS = 64
"""Segments that one pass removes, or whose files it deletes, at most: other topics want their turn too."""

Held = tuple[str, str]
"""An incarnation and a segment that it holds."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What the filer says of a topic that lives: the index was read before the layout; neither is behind the other."""

    index: Index
    layout: Layout


def truth(store: Store, topic: Topic) -> Truth | None:
    """None when the topic's name is another one's by now, or what was read does not fit together (yet)."""
    found = index.load(store, topic.name, topic.uid)
    layout = layouts.read_layout(store, topic.name, topic.uid)
    current = read_current(store, topic.name)
    if layout is None or current is None or current[0] != topic.uid:
        return None
    known = (layout[0], found.entries, found.removed)
    if index_is_behind(*known) or layout_is_behind(*known):
        return None
    return Truth(found, layout[0])


def remove_expired(
    store: Store, topic: Topic, groups: Sequence[GroupState], begun: Collection[Held], now: int, patience: Patience
) -> Verdict:
    """Takes out of the index what is beyond the topic's limits; returns what it took, and what stays for groups.

    ``begun`` are segments whose primary (incarnation, segment) has read all seal chunks that it opens by: until then
    their predecessors are needed. Raises StoreUnavailable; then some may have been removed.
    """
    known = truth(store, topic)
    if known is None:
        return Verdict([], {})
    needed = {
        name
        for segment in known.layout.segments
        if (segment.primary.incarnation, segment.name) not in begun
        for name in segment.predecessors
    }
    needed |= {entry.name for entry in known.index.entries if entry.name in known.layout}
    verdict = expired(topic.spec, known.index.entries, groups, now, needed)
    removals = verdict.removals[:MAX_PER_PASS]
    if removals:
        index.remove(store, topic.name, topic.uid, [_note(removal, now) for removal in removals], patience)
    return Verdict(removals, verdict.held)


def _note(removal: Removal, now: int) -> RemovedSegment:
    it = removal.segment
    return RemovedSegment(it.name, it.number, it.end, now, it.bytes, unread=removal.unread)


def delete_files(store: Store, topic: Topic, before: int, patience: Patience) -> tuple[list[RemovedSegment], int]:
    """Deletes the files of segments that were removed at or before this time. Returns the segments and how many files.

    Raises StoreUnavailable; then some files may be gone, and the rest is deleted by the next call.
    """
    known = truth(store, topic)
    if known is None:
        return [], 0
    living = {entry.name for entry in known.index.entries}
    due = [
        segment
        for segment in known.index.deleting
        if segment.removed_at <= before and segment.name not in living and segment.name not in known.layout
    ][:MAX_PER_PASS]
    count = sum(delete_segment(store, topic, segment.name) for segment in due)
    if due:
        index.files_deleted(store, topic.name, topic.uid, [segment.name for segment in due], patience)
    return due, count


def delete_segment(store: Store, topic: Topic, segment: str) -> int:
    """Deletes a segment's files, the last one first. Returns how many. Raises StoreUnavailable."""
    chain = Chain(store, topic.name, topic.uid, segment)
    # The walk finds them all, also those that a listing is too old to show; the listing finds what is no chunk.
    files = {chain.path(info.first) for info in chain.walk()}
    files |= {o.path for o in store.list(paths.segment_folder(topic.name, topic.uid, segment))}
    for path in sorted(files, reverse=True):
        store.delete(path)
    return len(files)
