"""Where a producer's uploads go."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol

from smq_storage.catalog import paths
from smq_storage.object_store.store import Data, Store


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What a reference names an upload by: the file's name below ``_uploads/<topic uid>/``, and its etag."""

    name: str
    etag: str


class UploadTarget(Protocol):
    """Safe from many threads."""

    def create(self, attempt: int, data: Data) -> StoredFile:
        """Writes ``data`` as a file with a new name, which has the number of the attempt.

        Raises StoreDenied, StoreUnavailable, and ObjectExists if the store has a file of that name.
        """
        ...


@dataclass(frozen=True, slots=True)
class DirectUploads:
    """Writes into the uploads of a topic with credentials for the store."""

    store: Store
    topic_uid: str
    producer: str
    epoch: int

    def create(self, attempt: int, data: Data) -> StoredFile:
        name = paths.upload_file_name(self.producer, self.epoch, attempt, uuid.uuid4().hex)
        return StoredFile(name, self.store.put_new(paths.uploaded_file(self.topic_uid, name), data))
