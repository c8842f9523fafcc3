"""The simulated store with the interface of the leader's store: paths, bytes, and blocking calls.

The other simulated processes and the checker read layout, index and commits. The store keeps them as objects under the
simulation's names, and this adapter converts them to the real JSON. Chunks stay objects: Parquet is not simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from smq_core.errors import StoreStateUnknown
from smq_core.model.atomic_publish import AtomicPublishes
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Layout
from smq_core.replica.log_entries import Entry
from smq_storage.catalog import paths
from smq_storage.catalog.group_positions import CommittedPositions
from smq_storage.catalog.sealed_index import IndexPage
from smq_storage.object_store import conditional_writes
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import from_json, to_json
from smq_storage.object_store.results import (
    EtagMismatch,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectTail,
    StoredObject,
)
from support.sim.clients import uploads
from support.sim.engine.virtual_threads import VirtualThread
from support.sim.engine.world import Process
from support.sim.filer.chunk_chain import INDEX, LAYOUT, PUBLISHES, TOPIC, UID, VALUES, StoredChunk, folder, path
from support.sim.filer.file_lists import StoredFile
from support.sim.filer.object_store import ConditionFailed, SimulatedStore
from support.sim.filer.virtual_times import object_time
from support.sim.leaders import group_host

_ROOT = paths.topic_folder(TOPIC, UID)
_VALUES = paths.large_values_folder(UID)


class _DocumentKind(NamedTuple):
    """A document's name in the simulation, and its conversion from and to JSON."""

    name: str
    kept: Callable[[Any], Any]
    shown: Callable[[Any], bytes]


class BlockingStore:
    """Stands in for ``smq_storage.object_store.store.Store`` in the blocking calls of one leader process."""

    url = "memory://simulation"

    def __init__(self, store: SimulatedStore, process: Process) -> None:
        self.store = store
        self.process = process

    def get(self, path: str) -> StoredObject:
        kind = _kind(path)
        found = VirtualThread.current().wait(self.store.get(self.process, kind.name))
        if found is None:
            raise ObjectMissing(path)
        return StoredObject(kind.shown(found[0]), found[1])  # type: ignore[arg-type]

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        """The whole document, with etag and time of the version that answers."""
        kind = _kind(path)
        found = VirtualThread.current().wait(self.store.get(self.process, kind.name))
        if found is None:
            raise ObjectMissing(path)
        written = next(at for at, _, etag in self.store.things[kind.name].versions if etag == found[1])
        data = kind.shown(found[0])
        return ObjectTail(memoryview(data), len(data), found[1], object_time(written))

    def put_new(self, path: str, data: Any) -> str:
        try:
            return self._put(path, data, None)
        except ConditionFailed:
            raise ObjectExists(path) from None

    def put_if(self, path: str, data: Any, etag: str) -> str:
        try:
            return self._put(path, data, etag)
        except ConditionFailed:
            raise EtagMismatch(path) from None

    def put(self, path: str, data: Any) -> str:
        """Replaces the object unconditionally, by repeated compare-and-swap."""
        while True:
            found = VirtualThread.current().wait(self.store.get(self.process, _kind(path).name))
            try:
                return self._put(path, data, found[1] if found is not None else None)
            except ConditionFailed:
                continue

    def _put(self, path: str, data: Any, etag: str | None) -> str:
        kind = _kind(path)
        new: str = VirtualThread.current().wait(self.store.put(self.process, kind.name, kind.kept(data), etag))
        return new

    def delete(self, path: str) -> None:
        try:
            VirtualThread.current().wait(self.store.delete(self.process, _kind(path).name))
        except ConditionFailed as error:
            raise StoreStateUnknown(error.message) from None

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Lists real paths; the chunks of one segment by the simulation's paths."""
        for name in self._names(prefix):
            path = name if name.startswith("seg/") and prefix != _ROOT else _shown_as(name)
            yield ObjectInfo(
                path, 0, self._modified(name) if name.startswith((uploads.FOLDER, VALUES)) else object_time(0)
            )

    def folders(self, prefix: str) -> Iterator[str]:
        """The folders directly below this folder."""
        found = {_shown_as(name)[len(prefix) + 1 :].partition("/") for name in self._names(prefix)}
        yield from sorted(f"{prefix}/{first}" for first, slash, _ in found if slash)

    def head(self, path: str) -> ObjectInfo:
        """The object's metadata. Raises ObjectMissing."""
        name = _kind(path).name
        if VirtualThread.current().wait(self.store.get(self.process, name)) is None:
            raise ObjectMissing(path)
        return ObjectInfo(path, 0, self._modified(name))

    def _modified(self, name: str) -> datetime:
        """When it was written; of an upload, which may be backdated, when it claims to have been."""
        written, value, _ = self.store.things[name].versions[-1]
        return object_time(value.uploaded_at if isinstance(value, uploads.UploadedFile) else written)

    def _names(self, prefix: str) -> list[str]:
        folders = ("seg/", LAYOUT, INDEX, "group/", f"doc/{_ROOT}/") if prefix == _ROOT else (_folder(prefix),)
        return [name for each in folders for name in VirtualThread.current().wait(self.store.list(self.process, each))]


class BlockingChain:
    """Stands in for ``smq_storage.chunks.chain.ChunkChain``, with the simulation's chunks."""

    def __init__(self, store: BlockingStore, topic: str, uid: str, segment: str) -> None:
        self._filer = store
        self._segment = segment

    def latest_hint(self) -> int:
        return 0

    def snapshot_hint(self) -> int:
        """A walk begins at offset 0, because listings give no hint."""
        return 0

    def path(self, first: int) -> str:
        return path(self._segment, first)

    def walk(self, start: int = 0) -> Iterator[ChunkInfo]:
        at: int | None = start
        while at is not None and (info := self.info(at)):
            yield info
            at = None if info.sealed else info.end

    def end(self) -> int:
        return max((info.end for info in self.walk()), default=0)

    def info(self, first: int) -> ChunkInfo | None:
        found = VirtualThread.current().wait(self._filer.store.get(self._filer.process, path(self._segment, first)))
        return found[0].info if found is not None else None

    def stored(self, first: int) -> StoredFile | None:
        info = self.info(first)
        return StoredFile(info, paths.chunk(TOPIC, UID, self._segment, first)) if info is not None else None

    def read_seal_chunk(self) -> ChunkInfo | None:
        return next((info for info in self.walk() if info.sealed), None)

    def put(
        self, info: ChunkInfo, entries: tuple[Entry, ...], schema: object, retry_policy: RetryPolicy, key: str
    ) -> Any:
        """The file, or what another writer has put there."""
        return self._create(StoredChunk.of(info, entries), retry_policy)

    def put_seal(self, info: ChunkInfo, retry_policy: RetryPolicy, schema: object) -> Any:
        return self._create(StoredChunk(info), retry_policy)

    def _create(self, stored: StoredChunk, retry_policy: RetryPolicy) -> Any:
        info = stored.info

        def read_back(store: Any, at: str) -> conditional_writes.ReadBackResult[ChunkInfo]:
            data, etag = store.get(at)
            return conditional_writes.ReadBackResult(data.info, etag)

        outcome = conditional_writes.create(
            self._filer,  # type: ignore[arg-type]
            path(self._segment, info.first),
            stored,  # type: ignore[arg-type]
            read_back=read_back,
            is_mine=lambda it: (it.writer, it.nonce) == (info.writer, info.nonce),
            retry_policy=retry_policy,
        )
        if isinstance(outcome, conditional_writes.WriteConflict):
            return outcome
        return StoredFile(info, paths.chunk(TOPIC, UID, self._segment, info.first))

    def files(self) -> list[Any]:
        return []


def _kind(name: str) -> _DocumentKind:
    if name == paths.layout(TOPIC, UID):
        return _DocumentKind(LAYOUT, lambda data: from_json(Layout, data), to_json)
    if name == paths.index_page(TOPIC, UID, 0):
        return _DocumentKind(INDEX, lambda data: from_json(IndexPage, data), to_json)
    if name == paths.publishes(TOPIC, UID):
        return _DocumentKind(PUBLISHES, lambda data: from_json(AtomicPublishes, data), to_json)
    if name.startswith(paths.groups_folder(TOPIC, UID)):
        return _DocumentKind(
            group_host.path(paths.group_name(name)), lambda data: from_json(CommittedPositions, data), to_json
        )
    first = paths.first_offset(name)
    if first is not None and name.startswith(f"{_ROOT}/"):
        name = path(name.removeprefix(f"{_ROOT}/").partition("/")[0], first)
    if paths.is_upload(name):
        name = uploads.FOLDER + paths.upload_name(name)
    if name.startswith(_VALUES):
        name = VALUES + paths.upload_name(name)
    if name.startswith(("seg/", uploads.FOLDER, VALUES)):
        return _DocumentKind(name, lambda kept: kept, lambda kept: kept)
    return _DocumentKind(f"doc/{name}", bytes, bytes)


def _shown_as(name: str) -> str:
    """The real path of the document that has this name in the simulation."""
    if name.startswith("seg/"):
        _, segment, first = name.split("/")
        return paths.chunk(TOPIC, UID, segment, int(first))
    if name.startswith(uploads.FOLDER):
        return f"{paths.uploads_folder(UID)}/{name.removeprefix(uploads.FOLDER)}"
    if name.startswith(VALUES):
        return f"{_VALUES}/{name.removeprefix(VALUES)}"
    if name.startswith("group/"):
        return paths.group(TOPIC, UID, name.removeprefix("group/"))
    if name in (LAYOUT, INDEX):
        return paths.layout(TOPIC, UID) if name == LAYOUT else paths.index_page(TOPIC, UID, 0)
    return name.removeprefix("doc/")


def _folder(prefix: str) -> str:
    if prefix == paths.groups_folder(TOPIC, UID):
        return "group/"
    if prefix == paths.uploads_folder(UID):
        return uploads.FOLDER
    if prefix == _VALUES:
        return VALUES
    if prefix in (paths.file_lists_folder(TOPIC, UID), paths.pins_folder(TOPIC, UID)):
        return f"doc/{prefix}/"
    return folder(prefix.rpartition("/")[2]) if prefix.startswith(paths.topic_folder(TOPIC, UID)) else f"doc/{prefix}"
