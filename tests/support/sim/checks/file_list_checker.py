"""What must hold of file lists; a violation has the number 17.

17. A file list that the index names lists what the chunk chain has, without a gap, up to the segment's end. It is
    written before it is named, and not deleted while it is named, nor before the files that it lists. A segment's named
    version only rises. In the end every sealed segment has a file list that can be read, and no orphaned one is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core.errors import CorruptDocument
from smq_core.invariants import Violation
from smq_core.model.entities import number_of
from smq_core.model.interval_set import contains
from smq_storage.catalog import paths
from smq_storage.catalog.sealed_index import IndexPage
from support.sim.filer.file_lists import decoded, file_list_of, name_in_store

if TYPE_CHECKING:
    from support.sim.checks.protocol_checker import ProtocolChecker


class FileListChecker:
    def __init__(self, checker: ProtocolChecker) -> None:
        self.checker = checker
        self._page = IndexPage()

    # ---- as it happens

    def concerns(self, path: str) -> bool:
        return path.startswith(name_in_store(""))

    def changed(self, path: str, value: Any) -> None:
        """A file list was written, damaged or deleted."""
        if value is None and any(path == name_in_store(it.file_list) for it in self._page.entries if it.file_list):
            self._broken(path, "it is deleted while the index names it")
        for removed in self._page.removed_segments:
            if value is None and removed.files and removed.file_list and path == name_in_store(removed.file_list):
                left = [it for it in self.checker.chain_of(removed.name) if not it.info.sealed]
                if left:
                    self._broken(removed.name, f"{path} is deleted before {len(left)} of its files")

    def index_put(self, page: IndexPage) -> None:
        before = {entry.name: entry.file_list for entry in self._page.entries}
        self._page = page
        for entry in page.entries:
            was = before.get(entry.name, "")
            if entry.file_list == was:
                continue
            if _version(entry.file_list) <= _version(was):
                self._broken(entry.name, f"the index named {was}, and now {entry.file_list or 'none'}")
            self._must_fit(entry.name, entry.file_list)

    def _must_fit(self, segment: str, name: str) -> None:
        """The file list was checked by whoever named it, so damage that came after that does not count."""
        store = self.checker.store
        stored = store.things.get(name_in_store(name))
        if stored is None or stored.versions[-1][1] is None:
            return self._broken(segment, f"the index names {name}, which does not exist")
        listed = decoded(stored.versions[0][1], segment)
        chain = self.checker.chain_of(segment)
        if not chain or not chain[-1].info.sealed:
            return self._broken(segment, f"the index names {name}, but the chain has no end")
        expected = file_list_of(segment, chain)
        if (listed.segment, listed.end, listed.files) != (segment, expected.end, expected.files):
            self._broken(segment, f"{name} lists {listed}, but the chain has {expected}")

    # ---- at the end

    def waiting(self) -> dict[str, str]:
        """The sealed segments that have no file list, or none that can be read."""
        waiting = {}
        for entry in self._page.entries:
            data = self.checker.store.truth(name_in_store(entry.file_list)) if entry.file_list else None
            if data is None:
                waiting[entry.name] = f"the index names no file list that exists: {entry.file_list!r}"
                continue
            try:
                decoded(data, entry.name)
            except CorruptDocument as error:
                waiting[entry.name] = error.message
        return waiting

    def orphaned(self) -> dict[str, str]:
        """The file lists of removed segments that still exist."""
        page, pending = self._page, {it.name for it in self._page.removed_segments if it.files}
        found = {}
        for path in self.checker.store.paths(name_in_store("")):
            segment = paths.file_list_segment(path) or ""
            if contains(page.removed, number_of(segment)) and segment not in pending:
                found[segment] = f"{path} is left of a removed segment"
        return found

    def _broken(self, subject: str, what: str) -> None:
        self.checker.must([Violation(17, subject, what)])


def _version(name: str) -> int:
    version = paths.file_list_version(name) if name else None
    return -1 if version is None else version
