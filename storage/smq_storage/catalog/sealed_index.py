"""The index of sealed segments: pages of at most 256 entries, in the order in which they left the layout.

Only the last page gains entries. The next page is created when it is full (``full`` stays set, also after retention
removes entries). Pages are never deleted, so they are found by a GET of the next name.

Retention moves an entry from ``entries`` to ``removed_segments`` of the same page, and its number to ``removed``, in
one write. ``removed`` stays forever: with it a reader distinguishes a removed predecessor from one that an old index
does not list yet, and a late append does not restore an entry. ``removed_segments`` shows whose files still have to be
deleted, so that the next leader continues there, and keeps the last ends for readers that come back.

Of a topic with Kafka's offsets the last page says where each partition ends after all segments that have been appended.
Successors that have not read a predecessor yet need it when retention has removed that one, and its seal chunk with it.

A page that retention has emptied stays too: it needs some ten kilobytes for 256 segments, and the pages after it are
found only through it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from smq_core.errors import StoreUnavailable
from smq_core.model.entities import RemovedSegment, SealedSegment
from smq_core.model.interval_set import EMPTY, IntervalSet, contains, from_numbers, union
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionOffsets, SealedPartitions, offsets_from_zero, with_sealed
from smq_core.model.sealed_losses import raise_loss
from smq_core.model.superseded_chunks import SupersededChunks
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import from_json
from smq_storage.object_store.json_documents import read_unless_missing, write_document
from smq_storage.object_store.store import Store

PAGE_ENTRIES = 256
# Removed segments without files of which a page keeps the name and the end.
MAX_REMOVED_PER_PAGE = 256
# Decoded pages that a process keeps. All but the last page of a topic hardly ever change.
KEPT_PAGES = 64
DEFAULT_RETRY_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class IndexPage:
    """One page. ``writer`` is unique for each write."""

    entries: tuple[SealedSegment, ...] = ()
    full: bool = False
    writer: str = ""
    removed: IntervalSet = EMPTY
    removed_segments: tuple[RemovedSegment, ...] = ()
    partitions: PartitionOffsets | None = None


@dataclass(frozen=True, slots=True)
class SealedRing:
    """What sealed segments of a topic with Kafka's offsets leave, by name. ``partitions`` are all of the topic."""

    partitions: KeyRange
    sealed: Mapping[str, SealedPartitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """All pages together."""

    entries: tuple[SealedSegment, ...] = ()
    removed: IntervalSet = EMPTY
    removed_segments: tuple[RemovedSegment, ...] = ()
    exists: bool = False
    """Whether there is any page. The first one is created with the first layout, so that a topic that has lost its
    layout is not taken for a new one."""
    partitions: PartitionOffsets | None = None
    """Where all partitions end, if the topic has Kafka's offsets and a segment has been appended."""

    @property
    def pending_deletion(self) -> list[RemovedSegment]:
        """The removed segments whose files are still to be deleted, oldest removal first."""
        return [segment for segment in self.removed_segments if segment.files]


def load(store: Store, topic: str, uid: str) -> Index:
    """The whole index. Raises StoreUnavailable."""
    pages = [page for _, page, _ in _pages(store, topic, uid)]
    return Index(
        entries=tuple(entry for page in pages for entry in page.entries),
        removed=union(*(page.removed for page in pages)),
        removed_segments=tuple(segment for page in pages for segment in page.removed_segments),
        exists=bool(pages),
        partitions=_partitions(pages),
    )


def create_first_page(store: Store, topic: str, uid: str, retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY) -> None:
    """Creates the index without entries, unless there is one. Raises StoreUnavailable."""
    _put(store, paths.index_page(topic, uid, 0), IndexPage(), None, retry_policy)


def read(store: Store, topic: str, uid: str) -> list[SealedSegment]:
    """All sealed segments that retention has not removed, in the order in which they were appended."""
    return list(load(store, topic, uid).entries)


def append(
    store: Store,
    topic: str,
    uid: str,
    entries: Sequence[SealedSegment],
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
    ring: SealedRing | None = None,
) -> None:
    """Adds the entries whose names the index does not have and never had. It can be repeated.

    ``ring`` has Kafka's offsets of these entries, if the topic has them.

    Raises StoreUnavailable if the policy's time ends; some entries may be in the index by then.
    """
    deadline = retry_policy.clock() + retry_policy.timeout_seconds
    while True:
        pages = list(_pages(store, topic, uid))
        known = {entry.name for _, page, _ in pages for entry in page.entries}
        removed = union(*(page.removed for _, page, _ in pages))
        new = {e.name: e for e in entries if e.name not in known and not contains(removed, e.number)}
        missing = list(new.values())
        if not missing:
            return
        number, page, etag = _last_page_with_capacity(pages)
        taken = page.entries + tuple(missing[: PAGE_ENTRIES - len(page.entries)])
        changed = replace(page, entries=taken, full=len(taken) == PAGE_ENTRIES)
        if ring is not None:
            before = _partitions([it for _, it, _ in pages]) or offsets_from_zero(ring.partitions)
            sealed = [ring.sealed[entry.name] for entry in taken[len(page.entries) :]]
            changed = replace(changed, partitions=with_sealed(before, sealed))
        written = _put(store, paths.index_page(topic, uid, number), changed, etag, retry_policy)
        if written and len(taken) == len(page.entries) + len(missing):
            return
        # The rest goes to the next page, or another leader was first: the next reading shows what is missing.
        if retry_policy.clock() > deadline:
            raise StoreUnavailable(f"the index of {topic} changes too often to be appended to")


def remove(
    store: Store,
    topic: str,
    uid: str,
    removals: Collection[RemovedSegment],
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> None:
    """Removes the entries of these segments, as far as there are any. Delete their files only after it.

    Raises StoreUnavailable.
    """
    by_name = {removal.name: removal for removal in removals}

    def without(page: IndexPage) -> IndexPage:
        removing = [
            replace(by_name[entry.name], file_list=entry.file_list) for entry in page.entries if entry.name in by_name
        ]
        if not removing:
            return page
        return replace(
            page,
            entries=tuple(entry for entry in page.entries if entry.name not in by_name),
            removed=union(page.removed, from_numbers(removal.number for removal in removing)),
            removed_segments=page.removed_segments + tuple(removing),
        )

    _change(store, topic, uid, without, retry_policy)


def mark_files_deleted(
    store: Store, topic: str, uid: str, names: Collection[str], retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
) -> None:
    """Records that these removed segments have no files any more. Raises StoreUnavailable."""
    done = set(names)

    def marked(page: IndexPage) -> IndexPage:
        if not any(segment.files and segment.name in done for segment in page.removed_segments):
            return page
        removed_segments = [replace(it, files=it.files and it.name not in done) for it in page.removed_segments]
        forgotten = [it.name for it in removed_segments if not it.files][:-MAX_REMOVED_PER_PAGE]
        return replace(page, removed_segments=tuple(it for it in removed_segments if it.name not in forgotten))

    _change(store, topic, uid, marked, retry_policy)


def raise_losses(
    store: Store,
    topic: str,
    uid: str,
    acked: Mapping[str, int],
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> list[SealedSegment]:
    """Records the losses that show because messages up to these offsets were acked, by segment.

    ``acked`` comes from watermarks of replicas and positions of groups. It can be repeated, and lowers nothing.

    Returns the entries of these segments as the index has them now. A segment without an entry is left out.
    Raises StoreUnavailable.
    """
    found: dict[str, SealedSegment] = {}

    def raised(page: IndexPage) -> IndexPage:
        changed = _with_entries(page, lambda entry: raise_loss(entry, acked.get(entry.name, 0)))
        found.update({entry.name: entry for entry in changed.entries if entry.name in acked})
        return changed

    _change(store, topic, uid, raised, retry_policy)
    return list(found.values())


def name_file_list(
    store: Store,
    topic: str,
    uid: str,
    segment: str,
    expected: str,
    new: str,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> bool:
    """Names the file list ``new`` in place of ``expected`` (empty: none so far). It can be repeated.

    True if the entry names ``new`` when this returns. False if the index has no such entry (retention removed the
    segment meanwhile) or names another file list: then nobody reads ``new``. Raises StoreUnavailable.
    """
    return name_file_lists(store, topic, uid, {segment: (expected, new)}, retry_policy).get(segment) == new


def name_file_lists(
    store: Store,
    topic: str,
    uid: str,
    swaps: Mapping[str, tuple[str, str]],
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> dict[str, str]:
    """:func:`name_file_list` for several segments, ``{segment: (expected, new)}``.

    Returns what the index names now for each of them. One that retention removed is left out. Raises StoreUnavailable.
    """

    def swapped(page: IndexPage) -> IndexPage:
        return _with_entries(page, lambda entry: _with_file_list(entry, swaps.get(entry.name)))

    pages = _change(store, topic, uid, swapped, retry_policy)
    return {entry.name: entry.file_list for page in pages for entry in page.entries if entry.name in swaps}


def record_superseded(
    store: Store,
    topic: str,
    uid: str,
    records: Mapping[str, SupersededChunks],
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> list[SealedSegment]:
    """Records since when chunks are superseded, or that they are deleted, by segment. It can be repeated.

    A record of another file list than the entry names changes nothing, and nor does one that another leader has written
    for the same file list, unless this one says that the chunks are deleted. Returns the entries of these segments as
    the index has them now. Raises StoreUnavailable.
    """

    def recorded(page: IndexPage) -> IndexPage:
        return _with_entries(page, lambda entry: _with_record(entry, records.get(entry.name)))

    pages = _change(store, topic, uid, recorded, retry_policy)
    return [entry for page in pages for entry in page.entries if entry.name in records]


def _partitions(pages: Sequence[IndexPage]) -> PartitionOffsets | None:
    return next((page.partitions for page in reversed(pages) if page.partitions is not None), None)


def _with_entries(page: IndexPage, change: Callable[[SealedSegment], SealedSegment]) -> IndexPage:
    """The page with each entry as ``change`` returns it; the same object if that changes none."""
    entries = tuple(map(change, page.entries))
    return page if entries == page.entries else replace(page, entries=entries)


def _with_record(entry: SealedSegment, record: SupersededChunks | None) -> SealedSegment:
    if record is None or record.file_list != entry.file_list:
        return entry
    known = entry.superseded
    if known is not None and known.file_list == record.file_list and (known.deleted or not record.deleted):
        return entry
    return replace(entry, superseded=record)


def _with_file_list(entry: SealedSegment, swap: tuple[str, str] | None) -> SealedSegment:
    return entry if swap is None or entry.file_list != swap[0] else replace(entry, file_list=swap[1])


def _change(
    store: Store, topic: str, uid: str, change: Callable[[IndexPage], IndexPage], retry_policy: RetryPolicy
) -> list[IndexPage]:
    """Writes every page that ``change`` returns changed. Returns the pages as they are then.

    If another leader has changed one meanwhile, all of it is repeated.
    """
    deadline = retry_policy.clock() + retry_policy.timeout_seconds
    while True:
        pages = [(n, page, change(page), etag) for n, page, etag in _pages(store, topic, uid)]
        puts = [
            _put(store, paths.index_page(topic, uid, number), changed, etag, retry_policy)
            for number, page, changed, etag in pages
            if changed is not page
        ]
        if all(puts):
            return [changed for _, _, changed, _ in pages]
        if retry_policy.clock() > deadline:
            raise StoreUnavailable(f"the index of {topic} changes too often to be changed")


def _pages(store: Store, topic: str, uid: str) -> Iterator[tuple[int, IndexPage, str]]:
    number = 0
    while found := read_unless_missing(store, paths.index_page(topic, uid, number), IndexPage, _decode_page):
        yield (number, *found)
        if not found[0].full:
            return
        number += 1


@lru_cache(KEPT_PAGES)
def _decode_page(data: bytes) -> IndexPage:
    """A page of 256 entries takes 6 ms. Raises ValueError."""
    return from_json(IndexPage, data)


def _last_page_with_capacity(pages: list[tuple[int, IndexPage, str]]) -> tuple[int, IndexPage, str | None]:
    if pages and not pages[-1][1].full:
        return pages[-1]
    return len(pages), IndexPage(), None


def _put(store: Store, path: str, page: IndexPage, etag: str | None, retry_policy: RetryPolicy) -> bool:
    """False if another leader has changed the page meanwhile."""
    mine = replace(page, writer=uuid.uuid4().hex)
    is_mine = _written_by(mine.writer)
    return write_document(store, path, mine, etag, is_mine=is_mine, retry_policy=retry_policy) is not None


def _written_by(writer: str) -> Callable[[IndexPage], bool]:
    return lambda page: page.writer == writer
