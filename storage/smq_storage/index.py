"""The index of sealed segments: pages of at most 256 entries, in the order in which they left the layout.

Only the last page gains entries; a page is created when the one before is full (``full`` is set in it for ever, also
when retention takes entries out), and never deleted. So the pages are found by GET of the next name.

Retention moves an entry of a page to the same page's ``gone`` and its number to ``removed``, in one write. ``removed``
stays for ever: with it a reader tells a predecessor that was removed from one that an old index does not have yet, and
a late append does not bring an entry back. ``gone`` says whose files are still to be deleted, so that whoever leads
next goes on with that, and keeps the last ends for readers that come back.

A page that retention has emptied stays too, at most some ten kilobytes for 256 segments. Its ``removed`` keeps a late
append from bringing an entry back, and a reader from waiting for a predecessor that is gone; and the pages behind it
are found only through it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from smq_core.errors import StoreUnavailable
from smq_core.model import RemovedSegment, SealedSegment
from smq_core.numbers import NONE, Numbers, contains, of, union
from smq_storage import paths
from smq_storage.conditional import Patience
from smq_storage.documents import read_document, write_document
from smq_storage.store import Store

PAGE_ENTRIES = 256
PAGE_GONE = 256
"""So many removed segments each page remembers whole once their files are deleted."""
DEFAULT_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class IndexPage:
    """One page. ``writer`` is unique for each write."""

    entries: tuple[SealedSegment, ...] = ()
    full: bool = False
    writer: str = ""
    removed: Numbers = NONE
    gone: tuple[RemovedSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class Index:
    """All pages together: what is there, and what was."""

    entries: tuple[SealedSegment, ...] = ()
    removed: Numbers = NONE
    gone: tuple[RemovedSegment, ...] = ()

    @property
    def deleting(self) -> list[RemovedSegment]:
        """The removed segments whose files are still to be deleted, oldest removal first."""
        return [segment for segment in self.gone if segment.files]


def load(store: Store, topic: str, uid: str) -> Index:
    """The whole index. Raises StoreUnavailable."""
    pages = [page for _, page, _ in _pages(store, topic, uid)]
    return Index(
        tuple(entry for page in pages for entry in page.entries),
        union(*(page.removed for page in pages)),
        tuple(segment for page in pages for segment in page.gone),
    )


def read(store: Store, topic: str, uid: str) -> list[SealedSegment]:
    """All sealed segments that retention has not removed, in the order in which they were appended."""
    return list(load(store, topic, uid).entries)


def append(
    store: Store, topic: str, uid: str, entries: Sequence[SealedSegment], patience: Patience = DEFAULT_PATIENCE
) -> None:
    """Adds the entries whose names the index does not have yet, and never had. Repeating it is harmless.

    Raises StoreUnavailable when the store gives no answer within the patience; some entries may be in by then.
    """
    deadline = patience.clock() + patience.seconds
    while True:
        pages = list(_pages(store, topic, uid))
        known = {entry.name for _, page, _ in pages for entry in page.entries}
        removed = union(*(page.removed for _, page, _ in pages))
        new = {e.name: e for e in entries if e.name not in known and not contains(removed, e.number)}
        missing = list(new.values())
        if not missing:
            return
        number, page, etag = _last_with_room(pages)
        taken = page.entries + tuple(missing[: PAGE_ENTRIES - len(page.entries)])
        changed = replace(page, entries=taken, full=len(taken) == PAGE_ENTRIES)
        # Whether it was written or another leader was first: look again at what is there.
        _put(store, paths.index_page(topic, uid, number), changed, etag, patience)
        if patience.clock() > deadline:
            raise StoreUnavailable(f"the index of {topic} changes too often to be appended to")


def remove(
    store: Store, topic: str, uid: str, removals: Collection[RemovedSegment], patience: Patience = DEFAULT_PATIENCE
) -> None:
    """Takes the entries of these segments out; those that are not there are fine. Their files must be deleted after it.

    Raises StoreUnavailable.
    """
    by_name = {removal.name: removal for removal in removals}

    def without(page: IndexPage) -> IndexPage:
        going = [by_name[entry.name] for entry in page.entries if entry.name in by_name]
        if not going:
            return page
        return replace(
            page,
            entries=tuple(entry for entry in page.entries if entry.name not in by_name),
            removed=union(page.removed, of(removal.number for removal in going)),
            gone=page.gone + tuple(going),
        )

    _change(store, topic, uid, without, patience)


def files_deleted(
    store: Store, topic: str, uid: str, names: Collection[str], patience: Patience = DEFAULT_PATIENCE
) -> None:
    """Writes down that these removed segments have no files any more. Raises StoreUnavailable."""
    done = set(names)

    def marked(page: IndexPage) -> IndexPage:
        if not any(segment.files and segment.name in done for segment in page.gone):
            return page
        gone = [replace(it, files=it.files and it.name not in done) for it in page.gone]
        forgotten = [it.name for it in gone if not it.files][:-PAGE_GONE]
        return replace(page, gone=tuple(it for it in gone if it.name not in forgotten))

    _change(store, topic, uid, marked, patience)


def _change(store: Store, topic: str, uid: str, change: Callable[[IndexPage], IndexPage], patience: Patience) -> None:
    """Changes every page that ``change`` wants otherwise, until it wants none."""
    deadline = patience.clock() + patience.seconds
    while True:
        wanted = [(n, page, change(page), etag) for n, page, etag in _pages(store, topic, uid)]
        wanted = [it for it in wanted if it[1] is not it[2]]
        if not wanted:
            return
        for number, _, changed, etag in wanted:
            _put(store, paths.index_page(topic, uid, number), changed, etag, patience)
        if patience.clock() > deadline:
            raise StoreUnavailable(f"the index of {topic} changes too often to be changed")


def _pages(store: Store, topic: str, uid: str) -> Iterator[tuple[int, IndexPage, str]]:
    number = 0
    while found := read_document(store, paths.index_page(topic, uid, number), IndexPage):
        yield (number, *found)
        if not found[0].full:
            return
        number += 1


def _last_with_room(pages: list[tuple[int, IndexPage, str]]) -> tuple[int, IndexPage, str | None]:
    if pages and not pages[-1][1].full:
        return pages[-1]
    return len(pages), IndexPage(), None


def _put(store: Store, path: str, page: IndexPage, etag: str | None, patience: Patience) -> None:
    mine = replace(page, writer=uuid.uuid4().hex)
    write_document(store, path, mine, etag, is_mine=lambda it: it.writer == mine.writer, patience=patience)
