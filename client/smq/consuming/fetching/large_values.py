"""Fetches large values from the filer for one consumer."""

from __future__ import annotations

import pyarrow as pa

from smq.lock_order import ClientLock
from smq.transport.topic_view import TopicView
from smq_storage.object_store.store import Store
from smq_storage.process.locks import make_lock
from smq_storage.uploads.large_values import LargeValue, read_large_value, with_large_value


class LargeValueReader:
    """Safe from many threads. The store is opened for the first value, with the timeout of large requests."""

    def __init__(self, view: TopicView) -> None:
        self._view = view
        self._lock = make_lock(ClientLock.UPLOADS)
        self._store: Store | None = None

    def read(self, large: LargeValue, segment: str, offset: int) -> bytes:
        """The value of the message at that offset. Raises DataLost with the object's name, StoreUnavailable."""
        with self._lock:
            if self._store is None:
                self._store = self._view.store.open_for_uploads()
            store = self._store
        return read_large_value(store, self._view.snapshot.topic.uid, large, segment, offset)

    def fill(self, message: pa.Table, large: LargeValue, segment: str, offset: int) -> pa.Table:
        """A table of one message, with its value, and with the headers that its program sent. Raises as ``read``."""
        return with_large_value(message, self.read(large, segment, offset))
