"""Lists that grow with a release are answered in pages, so that no answer is larger than some megabytes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Protocol, TypeVar

# A page ends with the entry that exceeds this. One entry has up to 5 MB, that of a broker with 10,000 segments.
PAGE_BYTES = 1 << 20


class Entry(Protocol):
    def ByteSize(self) -> int: ...


E = TypeVar("E", bound=Entry)


def page_of(entries: Iterable[tuple[str, E]]) -> tuple[list[E], str]:
    """The first entries, and the token of the next page; the token is empty if there is none.

    ``entries`` have their keys, in whose order they are, and begin after the key that is the token of this page. Those
    with the same key are in one page. They are made one by one, so that nothing is made for nothing.
    """
    page: list[E] = []
    size, last = 0, ""
    for key, found in groupby(entries, key=lambda it: it[0]):
        if page and size >= PAGE_BYTES:
            return page, last
        for _, entry in found:
            page.append(entry)
            size += entry.ByteSize()
        last = key
    return page, ""
