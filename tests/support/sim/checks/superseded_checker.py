"""What must hold of compacted segments while their superseded chunks are deleted; a violation has the number 16.

16. By the file list that the index names, and by a walk of the chunk chain, each acked row is readable exactly once. A
    file is deleted only a grace after the index named a file list without it, and not while a reader has a pin that has
    planned it. Nothing is written into a sealed chain. In the end nothing superseded is left.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any, cast

import pyarrow.parquet as pq

from smq_core.invariants import Violation
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import SealedSegment
from smq_core.reading.pins import ReaderPin
from smq_storage.catalog import paths
from smq_storage.catalog.sealed_index import IndexPage
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import decode_footer, info_of
from smq_storage.object_store.json_codec import from_json
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import decode_file_list
from smq_storage.tables.file_statistics import compacted_file
from smq_storage.tables.segment_files import StoredSegment
from smq_storage.verification.topic_files import TopicFiles
from support.data.small_chunks import NAME, UID, numbers
from support.sim.checks.protocol_checker import InvariantViolated
from support.sim.engine.world import SECOND, World
from support.sim.filer.file_store import OldListing, TrueFiles
from support.sim.filer.object_store import SimulatedStore

PINS = f"{paths.pins_folder(NAME, UID)}/"
INDEX = paths.index_page(NAME, UID, 0)
# The share of first compactions in which a merged file is altered as soon as the index names it.
DAMAGED = 0.08
# How late the filer's time may be when a leader records it, because its calls take time.
UNCLEAR = 4 * SECOND


class SupersededChecker:
    """Watches the store. Damaged segments are those of which the history has damaged a merged file."""

    def __init__(self, world: World, store: SimulatedStore, grace: int) -> None:
        self.world = world
        self.files = TrueFiles(store)
        self.damaged: set[str] = set()
        self.deleted = self.replaced = self.kept = self.removed = 0
        """Deleted and replaced chunks, those that a pin kept for longer than the grace, and removed segments."""
        self._grace = grace
        self._dice = Random(f"checks {world.seed}")
        self._listed: dict[str, SealedSegment] = {}
        self._sealed: dict[str, int] = {}
        self._used: dict[str, set[str]] = {}
        """The files in the file list that the index names, by segment."""
        self._unused_since: dict[str, int] = {}
        self._rows: dict[str, tuple[ChunkInfo | None, list[int]]] = {}
        """What a file has, by etag."""
        self._planned: dict[str, set[str]] = {}
        self._over: set[str] = set()
        self.violation: Violation | None = None
        """The first one, because an error of a process does not end the history."""
        store.watchers.append(self._changed)

    # ---- readers

    def planned(self, pin_id: str, entries: Iterable[SealedSegment]) -> None:
        """A reader has planned these segments, and its pin may have ended already."""
        if pin_id in self._over:
            return
        self._planned[pin_id] = {path for entry in entries for path in self._files_of(entry)}
        for path in sorted(self._planned[pin_id]):
            if self.files.find(path) is None and not self._is_damaged(path):
                self.broken(path, f"{pin_id} plans it, and it is gone")

    def released(self, pin_id: str) -> None:
        self._over.add(pin_id)

    def read(self, reader: str, segment: str, first: int, found: list[int]) -> int:
        """A reader got these rows from ``first`` on. Returns the offset after them."""
        if found != list(range(first, first + len(found))):
            self.broken(segment, f"{reader} reads {found} from offset {first} on")
        return first + len(found)

    def check_seal(self, segment: str, end: int) -> None:
        """A sealer that came late ends with this outcome."""
        if segment in self._listed and end != self._sealed[segment]:
            self.broken(segment, f"a late sealer ends at {end}, not {self._sealed[segment]}")

    def broken(self, subject: str, what: str) -> None:
        self.violation = self.violation or Violation(16, subject, what)
        raise InvariantViolated(self.violation)

    def _is_damaged(self, path: str) -> bool:
        return paths.is_compacted(path) and path.rsplit("/", 2)[-2] in self.damaged

    # ---- the end

    def check_end(self, horizon: int, *, in_time: bool) -> None:
        """Nothing is lost; with ``in_time`` nothing is left of what was superseded or removed before the horizon."""
        if self.violation is not None:
            raise InvariantViolated(self.violation)
        store = cast(Store, self.files)
        problems = [it for it in TopicFiles(store, NAME, rows=True).problems() if not self._is_damaged(it.path)]
        if problems:
            self.broken(problems[0].path, f"it {problems[0].what}")
        for name, entry in self._listed.items():
            self._check_segment(name)
            walked = replace(StoredSegment.of(NAME, UID, entry), file_list="")
            if numbers(store, walked) != list(range(entry.end)):
                self.broken(name, "a read without a file list does not get each row once")
            if name in self.damaged or not in_time or not paths.file_list_version(entry.file_list):
                continue
            if entry.superseded is None or not entry.superseded.deleted:
                self.broken(name, "its superseded chunks are not deleted")
            firsts = [paths.first_offset(it.path) for it in store.list(paths.segment_folder(NAME, UID, name))]
            if len(firsts) != len(self._used[name]) + 1:
                self.broken(name, f"the chunks at {firsts} are left for {len(self._used[name])} files")
        for name in self._sealed.keys() - self._listed.keys() if in_time else ():
            for folder in (paths.segment_folder, paths.compacted_folder):
                if left := list(self.files.list(folder(NAME, UID, name))):
                    self.broken(name, f"it was removed, and {left[0].path} is left")

    # ---- as it happens

    def _changed(self, path: str, value: Any) -> None:
        if path == INDEX:
            self._index_changed(from_json(IndexPage, value).entries)
        elif path.startswith(PINS):
            if value is None or from_json(ReaderPin, value).ended:
                self._over.add(paths.pin_id(path) or "")
        elif path.endswith(".parquet"):
            self._file_changed(path, value)

    def _index_changed(self, entries: Iterable[SealedSegment]) -> None:
        before, self._listed = self._listed, {it.name: it for it in entries}
        self.removed += len(before.keys() - self._listed.keys())
        for name, entry in self._listed.items():
            if name in before and before[name].file_list == entry.file_list:
                continue
            self._sealed[name] = entry.end
            used = self._files_of(entry)
            for path in self._used.get(name, set()) - used:
                self._unused_since.setdefault(path, self.world.now)
            self._used[name] = used
            if name in before:
                self.world.note("", name, f"the index names {entry.file_list}")
            if paths.file_list_version(entry.file_list) == 1 and self._dice.random() < DAMAGED:
                self._damage(name)
            self._check_segment(name)

    def _damage(self, name: str) -> None:
        """Alters a merged file before anything depends on it: then no chunk with its rows may be deleted."""
        self.damaged.add(name)
        path = next(it for it in sorted(self._used[name]) if paths.is_compacted(it))
        self.world.note("!", name, f"{path} is damaged")
        self.files.store.overwrite(path, b"damaged")

    def _file_changed(self, path: str, value: Any) -> None:
        name = path.rsplit("/", 2)[-2]
        if name not in self._sealed:
            return
        versions = self.files.store.things[path].versions
        if len(versions) == 1 or versions[-2][1] is None:
            if name in self._listed and not paths.is_compacted(path):
                self.broken(name, f"{path} is written into a sealed chain")
            return
        self.world.note("", name, f"{path} is {'deleted' if value is None else 'replaced'}")
        self.deleted += value is None
        self.replaced += value is not None
        for pin_id, planned in self._planned.items():
            if path in planned and pin_id not in self._over and not self._is_damaged(path):
                self.broken(name, f"{path} is deleted or replaced while {pin_id} lives")
        if name in self._listed and not self._is_damaged(path):
            since = self._unused_since.get(path)
            age = self.world.now - since if since is not None else 0
            if age < self._grace - UNCLEAR:
                self.broken(name, f"{path} is deleted or replaced {age / SECOND:.1f} s after a file list without it")
            self.kept += age > self._grace + 2 * UNCLEAR
        if name in self._listed:
            self._check_segment(name)

    # ---- rows

    def _files_of(self, entry: SealedSegment) -> set[str]:
        found = self.files.find(paths.file_list(NAME, UID, entry.file_list))
        if found is None:
            self.broken(entry.name, f"the file list {entry.file_list} is gone")
        data, folder = found[0] if found else b"", paths.segment_folder(NAME, UID, entry.name)
        return {it.path for it in decode_file_list(data, folder).files}

    def _check_segment(self, name: str) -> None:
        """Each row is readable once, by the file list and by the chain, also from where a listing says."""
        entry, end = self._listed[name], self._sealed[name]
        if name not in self.damaged:
            found = self.files.find(paths.file_list(NAME, UID, entry.file_list))
            assert found is not None
            at = 0
            for file in decode_file_list(found[0], paths.segment_folder(NAME, UID, name)).files:
                at = self._check_rows(name, "file_list", at, file.path, file.etag, file.first, file.end)
            if at != end:
                self.broken(name, f"its file list ends at {at}, not {end}")
        at = 0
        while True:
            path = paths.chunk(NAME, UID, name, at)
            info, _ = self._content(name, path)
            if info is None or info.sealed:
                break
            merged = compacted_file(path, info)
            where, etag = (merged.path, merged.etag) if merged is not None else (path, None)
            at = self._check_rows(name, "chain", at, where, etag, info.first, info.end)
        if info is None or at != end:
            self.broken(name, f"a walk of its chain ends at {at} and not at its seal chunk at {end}")
        self._check_listings(name, end)

    def _check_rows(self, name: str, by: str, at: int, path: str, etag: str | None, first: int, end: int) -> int:
        found = self.files.find(path)
        if found is None or etag not in (None, found[1]):
            self.broken(name, f"the {by} needs {path}, which is {'gone' if found is None else 'another'}")
        _, rows = self._content(name, path)
        if first != at or rows != list(range(first, end)):
            self.broken(name, f"the {by} has {rows} as the rows {first}..{end}, where {at} is next")
        return end

    def _content(self, name: str, path: str) -> tuple[ChunkInfo | None, list[int]]:
        """The info of a chunk, and its rows; neither if there is no such file."""
        found = self.files.find(path)
        if found is None:
            return None, []
        data, etag = found
        if etag not in self._rows:
            info = None if paths.is_compacted(path) else info_of(decode_footer(memoryview(data)))
            if info is not None and not info.rows:
                return info, []
            table = pq.ParquetFile(io.BytesIO(data)).read(["number"])
            self._rows[etag] = info, sorted(table["number"].to_pylist())
        return self._rows[etag]

    def _check_listings(self, name: str, end: int) -> None:
        """A walk that begins where a listing says finds any offset, also if the listing has chunks that are gone."""
        for files in (self.files, OldListing(self.files.store)):
            offset, chain = self._dice.randrange(end), ChunkChain(cast(Store, files), NAME, UID, name)
            first = chain.find(offset)
            info = self._content(name, chain.path(first))[0] if first is not None else None
            if info is None or not info.first <= offset < info.end:
                self.broken(name, f"by a listing a walk does not find offset {offset}")
