"""Parquet files of anybody, anywhere in the filer, as file objects."""

from __future__ import annotations

from dataclasses import replace
from typing import IO, cast

from smq_core.errors import InvalidRequest
from smq_storage.chunks.parquet_codec import TAIL_BYTES
from smq_storage.chunks.parquet_ranges import RangedFile
from smq_storage.object_store.store import EtagMismatch, ObjectMissing, ObjectTail, Store, StoreSettings


class ObjectChanged(OSError):
    """The object was replaced or deleted while it was read."""


def open_object(settings: StoreSettings, url: str) -> IO[bytes]:
    """Opens ``s3://bucket/path`` for reads, at the endpoint and with the credentials of these settings.

    Raises FileNotFoundError, InvalidRequest if it is no such URL, StoreDenied and StoreUnavailable. Reads raise
    ObjectChanged if another object has the name meanwhile.
    """
    bucket, _, path = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket or not path:
        raise InvalidRequest(f"{url!r} is not the URL of an object: write s3://bucket/path")
    store = replace(settings, url=f"s3://{bucket}").open()
    try:
        tail = store.get_tail(path, TAIL_BYTES)
    except ObjectMissing:
        raise FileNotFoundError(f"there is no object {url}") from None
    return cast("IO[bytes]", _ObjectFile(store, path, tail, url))


class _ObjectFile(RangedFile):
    """A RangedFile with the errors of files."""

    def __init__(self, store: Store, path: str, tail: ObjectTail, url: str) -> None:
        super().__init__(store, path, tail, ())
        self.name = url

    def read(self, size: int = -1) -> memoryview:
        try:
            return super().read(size)
        except (ObjectMissing, EtagMismatch):
            raise ObjectChanged(f"{self.name} was replaced or deleted while it was read") from None
