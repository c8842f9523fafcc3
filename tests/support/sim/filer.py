"""The simulated store as the leader process sees a store: paths and bytes, each call blocking a thread.

Layout, index and commits are what the other simulated processes read and the checker looks at: they are kept as
objects under the simulation's names, and turned into the real JSON here. Chunks stay objects: Parquet is not simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from smq_core.errors import StoreUnavailable
from smq_core.model import ChunkInfo, Layout
from smq_storage import conditional, paths
from smq_storage.conditional import Patience
from smq_storage.groups import CommittedPositions
from smq_storage.index import IndexPage
from smq_storage.objects import AlreadyThere, Changed, Listed, Object, ObjectMissing
from smq_storage.records import from_json, to_json
from support.sim import grouping
from support.sim.chain import INDEX, LAYOUT, Stored, folder, path
from support.sim.store import ConditionFailed, Store
from support.sim.virtual_asyncio import Job
from support.sim.world import SECOND, Process

TOPIC, UID = "default/t", "uid"
_ROOT = paths.topic_folder(TOPIC, UID)


class _Kind(NamedTuple):
    """Where a document is in the simulation, and how it becomes what the simulation keeps, and back."""

    name: str
    kept: Callable[[Any], Any]
    shown: Callable[[Any], bytes]


class Filer:
    """What ``smq_storage.store.Store`` is, for the blocking calls of one leader process."""

    url = "memory://simulation"

    def __init__(self, store: Store, process: Process) -> None:
        self.store = store
        self.process = process

    def get(self, path: str) -> Object:
        kind = _kind(path)
        found = Job.current().wait(self.store.get(self.process, kind.name))
        if found is None:
            raise ObjectMissing(path)
        return Object(kind.shown(found[0]), found[1])  # type: ignore[arg-type]

    def put_new(self, path: str, data: Any) -> str:
        try:
            return self._put(path, data, None)
        except ConditionFailed:
            raise AlreadyThere(path) from None

    def put_if(self, path: str, data: Any, etag: str) -> str:
        try:
            return self._put(path, data, etag)
        except ConditionFailed:
            raise Changed(path) from None

    def put(self, path: str, data: Any) -> str:
        """Whatever is there: by a compare-and-swap, again and again."""
        while True:
            found = Job.current().wait(self.store.get(self.process, _kind(path).name))
            try:
                return self._put(path, data, found[1] if found is not None else None)
            except ConditionFailed:
                continue

    def _put(self, path: str, data: Any, etag: str | None) -> str:
        kind = _kind(path)
        new: str = Job.current().wait(self.store.put(self.process, kind.name, kind.kept(data), etag))
        return new

    def delete(self, path: str) -> None:
        try:
            Job.current().wait(self.store.delete(self.process, _kind(path).name))
        except ConditionFailed as error:
            raise StoreUnavailable(error.message) from None

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[Listed]:
        """By the real paths; of a single segment, chunks by the simulation's."""
        for name in self._names(prefix):
            path = name if name.startswith("seg/") and prefix != _ROOT else _shown_as(name)
            yield Listed(path, 0, datetime.fromtimestamp(0, UTC))

    def folders(self, prefix: str) -> Iterator[str]:
        """The folders directly below this one."""
        found = {_shown_as(name)[len(prefix) + 1 :].partition("/") for name in self._names(prefix)}
        yield from sorted(f"{prefix}/{first}" for first, slash, _ in found if slash)

    def head(self, path: str) -> Listed:
        """What is known of an object without its data. Raises ObjectMissing."""
        name = _kind(path).name
        if Job.current().wait(self.store.get(self.process, name)) is None:
            raise ObjectMissing(path)
        written, _, _ = self.store.things[name].versions[-1]
        return Listed(path, 0, datetime.fromtimestamp(written / SECOND, UTC))

    def _names(self, prefix: str) -> list[str]:
        folders = ("seg/", LAYOUT, INDEX, "group/", f"doc/{_ROOT}/") if prefix == _ROOT else (_folder(prefix),)
        return [name for each in folders for name in Job.current().wait(self.store.list(self.process, each))]

    def patience(self, seconds: float) -> Patience:
        """So long in virtual time."""
        world = self.process.world
        return Patience(seconds, wait=lambda s: Job.current().wait(int(s * SECOND)), clock=lambda: world.now / SECOND)


class FilerChain:
    """What ``smq_storage.chain.Chain`` is to the leader, over the simulation's chunks."""

    def __init__(self, store: Filer, topic: str, uid: str, segment: str) -> None:
        self._filer = store
        self._segment = segment

    def latest_hint(self) -> int | None:
        return None

    def path(self, first: int) -> str:
        return path(self._segment, first)

    def walk(self) -> Iterator[ChunkInfo]:
        at: int | None = 0
        while at is not None and (info := self.info(at)):
            yield info
            at = None if info.sealed else info.end

    def info(self, first: int) -> ChunkInfo | None:
        found = Job.current().wait(self._filer.store.get(self._filer.process, path(self._segment, first)))
        return found[0].info if found is not None else None

    def seal(self) -> ChunkInfo | None:
        return next((info for info in self.walk() if info.sealed), None)

    def put_seal(self, info: ChunkInfo, patience: Patience, schema: object) -> Any:
        def look(store: Any, at: str) -> conditional.Found[ChunkInfo]:
            data, etag = store.get(at)
            return conditional.Found(data.info, etag)

        return conditional.create(
            self._filer,  # type: ignore[arg-type]
            path(self._segment, info.first),
            Stored(info),  # type: ignore[arg-type]
            look=look,
            is_mine=lambda it: (it.writer, it.nonce) == (info.writer, info.nonce),
            patience=patience,
        )

    def files(self) -> list[Any]:
        return []


def _kind(name: str) -> _Kind:
    if name == paths.layout(TOPIC, UID):
        return _Kind(LAYOUT, lambda data: from_json(Layout, data), to_json)
    if name == paths.index_page(TOPIC, UID, 0):
        return _Kind(INDEX, lambda data: from_json(IndexPage, data), to_json)
    if name.startswith(paths.groups_folder(TOPIC, UID)):
        return _Kind(grouping.path(paths.group_name(name)), lambda data: from_json(CommittedPositions, data), to_json)
    first = paths.first_offset(name)
    if first is not None and name.startswith(f"{_ROOT}/"):
        name = path(name.removeprefix(f"{_ROOT}/").partition("/")[0], first)
    if name.startswith("seg/"):
        return _Kind(name, lambda kept: kept, lambda kept: kept)
    return _Kind(f"doc/{name}", bytes, bytes)


def _shown_as(name: str) -> str:
    """The real path of what the simulation keeps under this name."""
    if name.startswith("seg/"):
        _, segment, first = name.split("/")
        return paths.chunk(TOPIC, UID, segment, int(first))
    if name.startswith("group/"):
        return paths.group(TOPIC, UID, name.removeprefix("group/"))
    if name in (LAYOUT, INDEX):
        return paths.layout(TOPIC, UID) if name == LAYOUT else paths.index_page(TOPIC, UID, 0)
    return name.removeprefix("doc/")


def _folder(prefix: str) -> str:
    if prefix == paths.groups_folder(TOPIC, UID):
        return "group/"
    return folder(prefix.rpartition("/")[2]) if prefix.startswith(paths.topic_folder(TOPIC, UID)) else f"doc/{prefix}"
