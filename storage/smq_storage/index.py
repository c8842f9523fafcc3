"""The index of sealed segments: pages of at most 256 entries, in the order in which they left the layout.

Only the last page gains entries; a page is created when the one before is full (``full`` is set in it for ever, also
when retention takes entries out), and never deleted. So the pages are found by GET of the next name.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from smq_core.errors import StoreUnavailable
from smq_core.model import SealedSegment
from smq_storage import paths
from smq_storage.conditional import Patience
from smq_storage.documents import read_document, write_document
from smq_storage.store import Store

PAGE_ENTRIES = 256
DEFAULT_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class IndexPage:
    """One page. ``writer`` is unique for each write."""

    entries: tuple[SealedSegment, ...] = ()
    full: bool = False
    writer: str = ""


def read(store: Store, topic: str, uid: str) -> list[SealedSegment]:
    """All sealed segments that retention has not removed, in the order in which they were appended."""
    return [entry for _, page, _ in _pages(store, topic, uid) for entry in page.entries]


def append(
    store: Store, topic: str, uid: str, entries: Sequence[SealedSegment], patience: Patience = DEFAULT_PATIENCE
) -> None:
    """Adds the entries whose names the index does not have yet. Repeating it is harmless.

    Raises StoreUnavailable when the store gives no answer within the patience; some entries may be in by then.
    """
    deadline = patience.clock() + patience.seconds
    while True:
        pages = list(_pages(store, topic, uid))
        known = {entry.name for _, page, _ in pages for entry in page.entries}
        missing = list({entry.name: entry for entry in entries if entry.name not in known}.values())
        if not missing:
            return
        number, page, etag = _last_with_room(pages)
        taken = page.entries + tuple(missing[: PAGE_ENTRIES - len(page.entries)])
        changed = replace(page, entries=taken, full=len(taken) == PAGE_ENTRIES)
        # Whether it was written or another leader was first: look again at what is there.
        _put(store, paths.index_page(topic, uid, number), changed, etag, patience)
        if patience.clock() > deadline:
            raise StoreUnavailable(f"the index of {topic} changes too often to be appended to")


def remove(store: Store, topic: str, uid: str, names: Collection[str], patience: Patience = DEFAULT_PATIENCE) -> None:
    """Takes the entries of these names out; names that are not there are fine. Their files must be deleted after it.

    Raises StoreUnavailable.
    """
    gone = set(names)
    deadline = patience.clock() + patience.seconds
    while True:
        hit = [(n, page, etag) for n, page, etag in _pages(store, topic, uid) if gone & {e.name for e in page.entries}]
        if not hit:
            return
        for number, page, etag in hit:
            left = tuple(entry for entry in page.entries if entry.name not in gone)
            _put(store, paths.index_page(topic, uid, number), replace(page, entries=left), etag, patience)
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
