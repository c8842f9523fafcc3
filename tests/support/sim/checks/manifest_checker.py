"""What must hold of manifests; a violation has the number 17.

17. A manifest that the index names lists what the chunk chain has, without a gap, up to the segment's end. It is
    written before it is named, and not deleted while it is named, nor before the files that it lists. A segment's named
    version only rises. In the end every sealed segment has a manifest that can be read, and no orphaned one is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core.errors import CorruptDocument
from smq_core.invariants import Violation
from smq_core.model.entities import number_of
from smq_core.model.interval_set import contains
from smq_storage.catalog import paths
from smq_storage.catalog.sealed_index import IndexPage
from support.sim.filer.manifest_files import decoded, manifest_of, name_in_store

if TYPE_CHECKING:
    from support.sim.checks.protocol_checker import ProtocolChecker


class ManifestChecker:
    def __init__(self, checker: ProtocolChecker) -> None:
        self.checker = checker
        self._page = IndexPage()

    # ---- as it happens

    def concerns(self, path: str) -> bool:
        return path.startswith(name_in_store(""))

    def changed(self, path: str, value: Any) -> None:
        """A manifest was written, damaged or deleted."""
        if value is None and any(path == name_in_store(it.manifest) for it in self._page.entries if it.manifest):
            self._broken(path, "it is deleted while the index names it")
        for removed in self._page.removed_segments:
            if value is None and removed.files and removed.manifest and path == name_in_store(removed.manifest):
                left = [it for it in self.checker.chain_of(removed.name) if not it.info.sealed]
                if left:
                    self._broken(removed.name, f"{path} is deleted before {len(left)} of its files")

    def index_put(self, page: IndexPage) -> None:
        before = {entry.name: entry.manifest for entry in self._page.entries}
        self._page = page
        for entry in page.entries:
            was = before.get(entry.name, "")
            if entry.manifest == was:
                continue
            if _version(entry.manifest) <= _version(was):
                self._broken(entry.name, f"the index named {was}, and now {entry.manifest or 'none'}")
            self._must_fit(entry.name, entry.manifest)

    def _must_fit(self, segment: str, name: str) -> None:
        """The manifest was checked by whoever named it, so damage that came after that does not count."""
        store = self.checker.store
        stored = store.things.get(name_in_store(name))
        if stored is None or stored.versions[-1][1] is None:
            return self._broken(segment, f"the index names {name}, which does not exist")
        listed = decoded(stored.versions[0][1], segment)
        chain = self.checker.chain_of(segment)
        if not chain or not chain[-1].info.sealed:
            return self._broken(segment, f"the index names {name}, but the chain has no end")
        expected = manifest_of(segment, chain)
        if (listed.segment, listed.end, listed.files) != (segment, expected.end, expected.files):
            self._broken(segment, f"{name} lists {listed}, but the chain has {expected}")

    # ---- at the end

    def waiting(self) -> dict[str, str]:
        """The sealed segments that have no manifest, or none that can be read."""
        waiting = {}
        for entry in self._page.entries:
            data = self.checker.store.truth(name_in_store(entry.manifest)) if entry.manifest else None
            if data is None:
                waiting[entry.name] = f"the index names no manifest that exists: {entry.manifest!r}"
                continue
            try:
                decoded(data, entry.name)
            except CorruptDocument as error:
                waiting[entry.name] = error.message
        return waiting

    def orphaned(self) -> dict[str, str]:
        """The manifests of removed segments that still exist."""
        page, pending = self._page, {it.name for it in self._page.removed_segments if it.files}
        found = {}
        for path in self.checker.store.paths(name_in_store("")):
            segment = paths.manifest_segment(path) or ""
            if contains(page.removed, number_of(segment)) and segment not in pending:
                found[segment] = f"{path} is left of a removed segment"
        return found

    def _broken(self, subject: str, what: str) -> None:
        self.checker.must([Violation(17, subject, what)])


def _version(name: str) -> int:
    version = paths.manifest_version(name) if name else None
    return -1 if version is None else version
