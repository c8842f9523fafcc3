"""Puts uploads into the store: one is on its way while the next one is being encoded."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from smq.producing.uploads.upload_encoder import EncodedUpload
from smq.producing.uploads.upload_targets import UploadTarget
from smq.producing.uploads.uploaded_rows import UploadedFile
from smq.transport.backoff import Backoff
from smq_core.errors import StoreDenied, StoreUnavailable
from smq_storage.object_store.store import ObjectExists

log = logging.getLogger(__name__)

MIN_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 2.0

T = TypeVar("T")


class Uploader:
    """Uploads for one producer of a topic. A PUT without a clear answer is repeated for up to ``timeout`` seconds."""

    def __init__(self, target: UploadTarget, timeout: float) -> None:
        self._target = target
        self._timeout = timeout

    def upload(self, encoded: EncodedUpload) -> UploadedFile:
        """Raises StoreUnavailable, StoreDenied.

        Each attempt has a name of its own, so a late PUT of an earlier one changes no file that the log refers to.
        Nothing refers to a file that is left over, and garbage collection deletes it.
        """
        deadline = time.monotonic() + self._timeout
        backoff = Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        attempt = 0
        while True:
            attempt += 1
            try:
                stored = self._target.create(attempt, encoded.data)
            except StoreDenied:
                raise
            except (StoreUnavailable, ObjectExists) as error:
                backoff.increase()
                if isinstance(error, StoreUnavailable) and time.monotonic() + backoff.seconds > deadline:
                    raise
                log.info("an upload is repeated: %s", error)
                time.sleep(backoff.seconds)
            else:
                return UploadedFile(stored.name, stored.etag, encoded.data.size, encoded.schema_version, encoded.index)

    def upload_all(self, parts: Iterable[tuple[T, EncodedUpload]]) -> Iterator[tuple[T, EncodedUpload, UploadedFile]]:
        """Uploads the parts one after the other, and takes the next part while one is on its way."""
        with ThreadPoolExecutor(1, "smq-upload") as pool:
            waiting: tuple[T, EncodedUpload, Future[UploadedFile]] | None = None
            for tag, encoded in parts:
                if waiting is not None:
                    yield waiting[0], waiting[1], waiting[2].result()
                waiting = tag, encoded, pool.submit(self.upload, encoded)
            if waiting is not None:
                yield waiting[0], waiting[1], waiting[2].result()
