"""Reads from the object store: what :class:`Store` needs of them, and how a client of obstore makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

import obstore
from obstore.exceptions import BaseError

from smq_storage.object_store.failures import call_store
from smq_storage.object_store.results import ObjectInfo, ObjectMissing, ObjectTail

Range: TypeAlias = tuple[int, int]
"""Bytes from the first number to before the second one."""


class FoundObject(NamedTuple):
    """What was read of an object, and the object's whole size, etag and time of the last change."""

    data: memoryview
    etag: str
    size: int
    modified: datetime


class Reads(Protocol):
    """Safe from many threads. Each method raises StoreUnavailable, StoreDenied and BucketMissing."""

    lists_uploads: bool
    """See ``Store.lists_uploads``."""

    def read(self, path: str, part: Range | None = None) -> FoundObject:
        """An object, or a part of it. Raises ObjectMissing."""
        ...

    def read_tail(self, path: str, nbytes: int) -> ObjectTail:
        """The last bytes of an object, or all if it is smaller. Raises ObjectMissing."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """Raises ObjectMissing."""
        ...

    def list(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        """The objects below a folder, in the order of their names."""
        ...

    def folders(self, prefix: str) -> Sequence[str]:
        """The folders directly below a folder, as sorted paths."""
        ...

    def expect(self, paths: Iterable[str]) -> None:
        """These will be read, in this order."""
        ...


class DirectReads:
    """With the credentials of a client of obstore. ``where`` names the store in errors."""

    lists_uploads = True

    def __init__(self, client: Any, where: str) -> None:
        self._client = client
        self._where = where

    def read(self, path: str, part: Range | None = None) -> FoundObject:
        return call_store(lambda: self._read(path, part), path, self._where)

    def read_tail(self, path: str, nbytes: int) -> ObjectTail:
        found = call_store(lambda: self._read_tail(path, nbytes), path, self._where)
        return ObjectTail(found.data, found.size, found.etag, found.modified)

    def head(self, path: str) -> ObjectInfo:
        meta = call_store(lambda: obstore.head(self._client, path), path, self._where)
        return ObjectInfo(path, meta["size"], meta["last_modified"])

    def list(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        try:
            pages = call_store(
                lambda: obstore.list(self._client, prefix or None, offset=start_after, chunk_size=1000),
                prefix,
                self._where,
            )
            while page := call_store(lambda: next(pages, None), prefix, self._where):
                for meta in page:
                    yield ObjectInfo(meta["path"], meta["size"], meta["last_modified"])
        except ObjectMissing:
            return

    def folders(self, prefix: str) -> Sequence[str]:
        try:
            found = call_store(lambda: obstore.list_with_delimiter(self._client, prefix or None), prefix, self._where)
        except ObjectMissing:
            return []
        return sorted(str(folder).rstrip("/") for folder in found["common_prefixes"])

    def expect(self, paths: Iterable[str]) -> None:
        """Nothing has to be prepared."""

    def _read(self, path: str, part: Any) -> FoundObject:
        # bytes() fetches the body, so its errors must be translated too.
        result = obstore.get(self._client, path, options={"range": part} if part else {})
        meta = result.meta
        return FoundObject(memoryview(result.bytes()), str(meta["e_tag"]), meta["size"], meta["last_modified"])

    def _read_tail(self, path: str, nbytes: int) -> FoundObject:
        try:
            return self._read(path, {"suffix": nbytes})
        except BaseError as error:
            if "status code: 416" not in str(error):
                raise
            return self._read(path, None)  # an empty object has no range of bytes
