"""Where a producer's uploads go."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol

from smq.transport.topic_store import UPLOAD_TIMEOUT_SECONDS
from smq.transport.topic_view import TopicView
from smq_proto.v1 import topics_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.presigned.puts import put_presigned
from smq_storage.object_store.presigned.urls import PresignedPut
from smq_storage.object_store.request_bodies import Data, size_and_sha256
from smq_storage.object_store.store import Store


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What a reference names an upload by: the file's name below ``_uploads/<topic uid>/``, and its etag."""

    name: str
    etag: str


class UploadTarget(Protocol):
    """Safe from many threads."""

    def create(self, attempt: int, data: Data) -> StoredFile:
        """Writes ``data`` as a file with a new name, which has the number of the attempt.

        Raises StoreDenied, StoreUnavailable, ObjectExists if the store has a file of that name, and Unavailable if no
        leader answers that is needed.
        """
        ...


class ValueStore(Protocol):
    """Where large values go, as in :class:`smq_storage.object_store.store.Store`. Safe from many threads."""

    def put_new(self, path: str, data: Data) -> str:
        """Creates the object and returns its etag.

        Raises as :meth:`UploadTarget.create`. ObjectExists also means that an earlier attempt has created it.
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


@dataclass(frozen=True, slots=True)
class PresignedUploads:
    """Writes with URLs that the leader signs, one for each file, and without credentials.

    The leader chooses the name of an upload, and the URL takes these bytes alone, once. An attempt without an answer is
    therefore repeated under another name: what became of the first one cannot be read without credentials. A large
    value keeps its name, which its message has, and nobody needs its etag. ``timeout`` limits a PUT, in seconds.
    """

    view: TopicView
    producer: str
    epoch: int
    timeout: float = UPLOAD_TIMEOUT_SECONDS

    def create(self, attempt: int, data: Data) -> StoredFile:
        return self._put(data, attempt=attempt)

    def put_new(self, path: str, data: Data) -> str:
        return self._put(data, large_value=paths.upload_name(path)).etag

    def _put(self, data: Data, *, attempt: int = 0, large_value: str = "") -> StoredFile:
        size, sha256 = size_and_sha256(data)
        file = topics_pb2.SignUploadsRequest.File(size=size, sha256=sha256, large_value=large_value)
        reply = self.view.sign_uploads(
            topics_pb2.SignUploadsRequest(producer=self.producer, epoch=self.epoch, attempt=attempt, files=[file])
        )
        signed = reply.uploads[0]
        put = PresignedPut(signed.url, dict(signed.headers))
        proxy = self.view.dialer.http_proxy(signed.url)
        return StoredFile(signed.name, put_presigned(put, data, timeout=self.timeout, proxy=proxy))


def open_upload_target(view: TopicView, producer: str, epoch: int) -> UploadTarget:
    """How this client writes uploads of that topic. Raises StoreUnavailable if the filer's address is not known."""
    if view.store.signs_uploads:
        return PresignedUploads(view, producer, epoch)
    return DirectUploads(view.store.open_for_uploads(), view.snapshot.topic.uid, producer, epoch)


def open_value_store(view: TopicView, producer: str, epoch: int, timeout: float) -> ValueStore:
    """How this client writes large values of that topic. Raises as ``open_upload_target``.

    A request may take ``timeout`` seconds, or UPLOAD_TIMEOUT_SECONDS if that is more.
    """
    if view.store.signs_uploads:
        return PresignedUploads(view, producer, epoch, max(UPLOAD_TIMEOUT_SECONDS, timeout))
    return view.store.open_for_uploads(timeout)
