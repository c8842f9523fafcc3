"""The simulated store with the interface of ``Store``: real paths, and the real bytes of every file.

``FileStore`` makes the blocking calls of one process, with all faults. ``TrueFiles`` is what the store really has: it
answers at once, for the checker and for what a history has before it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from smq_core.errors import StoreStateUnknown
from smq_storage.object_store.results import (
    EtagMismatch,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectTail,
    StoredObject,
)
from support.sim.engine.virtual_threads import VirtualThread
from support.sim.engine.world import Process
from support.sim.filer.object_store import ANY_VERSION, ConditionFailed, SimulatedStore
from support.sim.filer.virtual_times import object_time


class TrueFiles:
    """Reads and writes without time and faults."""

    url = "memory://simulation"
    lists_uploads = True

    def __init__(self, store: SimulatedStore) -> None:
        self.store = store

    def find(self, path: str) -> tuple[bytes, str] | None:
        """The bytes and the etag, or None if there is no such object."""
        thing = self.store.things.get(path)
        if thing is None or thing.versions[-1][1] is None:
            return None
        _, data, etag = thing.versions[-1]
        return data, str(etag)

    def get(self, path: str) -> StoredObject:
        data, etag = self._read(path)
        return StoredObject(memoryview(data), etag)

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> memoryview:
        data, found = self._read(path)
        if etag not in (None, found):
            raise EtagMismatch(path)
        return memoryview(data)[start:stop]

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        data, etag = self._read(path)
        return ObjectTail(memoryview(data)[-nbytes:], len(data), etag, self._written(path, etag))

    def head(self, path: str) -> ObjectInfo:
        data, etag = self._read(path)
        return ObjectInfo(path, len(data), self._written(path, etag))

    def expect(self, paths: Iterable[str]) -> None:
        """Nothing is prepared: these reads need no requests."""

    def put_new(self, path: str, data: Any) -> str:
        try:
            return self._write(path, bytes(data), None)
        except ConditionFailed:
            raise ObjectExists(path) from None

    def put_if(self, path: str, data: Any, etag: str) -> str:
        try:
            return self._write(path, bytes(data), etag)
        except ConditionFailed:
            raise EtagMismatch(path) from None

    def put(self, path: str, data: Any) -> str:
        try:
            return self._write(path, bytes(data), ANY_VERSION)
        except ConditionFailed as error:  # a store that refuses without a reason
            raise StoreStateUnknown(error.message) from None

    def delete(self, path: str) -> None:
        try:
            self._write(path, None, ANY_VERSION)
        except ConditionFailed as error:
            raise StoreStateUnknown(error.message) from None

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for path in self._names(f"{prefix}/"):
            if start_after is None or path > start_after:
                written, data, _ = next(it for it in reversed(self.store.things[path].versions) if it[1] is not None)
                yield ObjectInfo(path, len(data), object_time(written))

    def folders(self, prefix: str) -> list[str]:
        found = {path[len(prefix) + 1 :].partition("/") for path in self._names(f"{prefix}/")}
        return sorted(f"{prefix}/{first}" for first, slash, _ in found if slash)

    def _read(self, path: str) -> tuple[bytes, str]:
        found = self.find(path)
        if found is None:
            raise ObjectMissing(path)
        return found

    def _write(self, path: str, data: bytes | None, etag: str | None) -> str:
        new = self.store.apply_at_once(path, data, etag)
        if new is None:
            raise ConditionFailed("the condition does not hold")
        return new

    def _names(self, prefix: str) -> list[str]:
        return sorted(self.store.paths(prefix))

    def _written(self, path: str, etag: str) -> datetime:
        return object_time(next(at for at, _, found in self.store.things[path].versions if found == etag))


class OldListing(TrueFiles):
    """Its listings also have what was deleted."""

    def _names(self, prefix: str) -> list[str]:
        return sorted(path for path in self.store.things if path.startswith(prefix))


class FileStore(TrueFiles):
    """The blocking calls of a process. ``sees_new_files``: no file that exists is missing in an old answer."""

    def __init__(self, store: SimulatedStore, process: Process, *, sees_new_files: bool = False) -> None:
        super().__init__(store)
        self.process = process
        self._sees_new_files = sees_new_files

    def _read(self, path: str) -> tuple[bytes, str]:
        while (found := VirtualThread.current().wait(self.store.get(self.process, path))) is None:
            if not self._sees_new_files or self.find(path) is None:
                raise ObjectMissing(path)
        return found  # type: ignore[no-any-return]

    def _write(self, path: str, data: bytes | None, etag: str | None) -> str:
        new: str = VirtualThread.current().wait(self.store.put(self.process, path, data, etag))
        return new

    def _names(self, prefix: str) -> list[str]:
        found: list[str] = VirtualThread.current().wait(self.store.list(self.process, prefix))
        return found
