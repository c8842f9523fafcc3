"""Puts uploads into the store: some are on their way while others are being encoded."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from smq.producing.uploads.upload_encoder import EncodedUpload
from smq.producing.uploads.upload_targets import UploadTarget
from smq.producing.uploads.uploaded_rows import UploadedFile
from smq_core.backoff import Backoff
from smq_core.errors import StoreDenied, StoreUnavailable, Unavailable
from smq_storage.object_store.store import ObjectExists

log = logging.getLogger(__name__)

MIN_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 2.0

# How many files are encoded and uploaded at the same time: Arrow encodes a file in one thread.
UPLOAD_THREADS = 3

# How many bytes of rows, or of finished files, are worked on at the same time; more only if one file has more.
IN_FLIGHT_BYTES = 512 << 20

T = TypeVar("T")
Order: TypeAlias = "npt.NDArray[np.uint32] | None"


@dataclass(frozen=True, slots=True)
class UploadTask(Generic[T]):
    """A file to upload. ``encode`` makes its content from ``nbytes`` of input. ``tag`` is the caller's."""

    tag: T
    nbytes: int
    encode: Callable[[], EncodedUpload]


class Uploader:
    """Uploads for one producer of a topic. A PUT that has not certainly created its file is repeated.

    That goes on for up to ``timeout`` seconds.
    """

    def __init__(self, target: UploadTarget, timeout: float) -> None:
        self._target = target
        self._timeout = timeout

    def upload(self, encoded: EncodedUpload) -> UploadedFile:
        """Raises StoreUnavailable, StoreDenied, and Unavailable if no leader signs the upload.

        Each attempt has its own name, so a late PUT of an earlier one changes no file that the log refers to.
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
            except (Unavailable, ObjectExists) as error:
                backoff.increase()
                if time.monotonic() + backoff.seconds > deadline:
                    raise self._failure(attempt, error) from None
                log.info("an upload is repeated: %s", error)
                time.sleep(backoff.seconds)
            else:
                return UploadedFile(
                    name=stored.name,
                    etag=stored.etag,
                    size=encoded.data.size,
                    schema_version=encoded.schema_version,
                    index=encoded.index,
                )

    def _failure(self, attempts: int, error: Unavailable | ObjectExists) -> Unavailable:
        if isinstance(error, Unavailable):
            return error
        return StoreUnavailable(
            f"the store already had a file of each new name that an upload got, in {attempts} attempts and "
            f"{self._timeout} s, the last one {error}. Nothing of this call is published: check whether something else "
            "writes into the uploads of this topic, or repeats requests, and publish again"
        )

    def upload_all(self, tasks: Iterable[UploadTask[T]]) -> Iterator[tuple[T, Order, UploadedFile]]:
        """Encodes and uploads in several threads. Yields the files in the order of the tasks.

        Takes a task when its bytes may be in memory beside those that are being worked on. If one fails, those that
        have not begun are given up.
        """
        pool = ThreadPoolExecutor(UPLOAD_THREADS, "smq-upload")
        waiting: deque[tuple[UploadTask[T], Future[tuple[Order, UploadedFile]]]] = deque()
        try:
            for task in tasks:
                while waiting and _are_too_many(task, *(earlier for earlier, _ in waiting)):
                    yield _outcome(*waiting.popleft())
                waiting.append((task, pool.submit(self._encode_and_upload, task.encode)))
            while waiting:
                yield _outcome(*waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _encode_and_upload(self, encode: Callable[[], EncodedUpload]) -> tuple[Order, UploadedFile]:
        encoded = encode()
        return encoded.order, self.upload(encoded)


def _are_too_many(*tasks: UploadTask[T]) -> bool:
    return len(tasks) > UPLOAD_THREADS or sum(task.nbytes for task in tasks) > IN_FLIGHT_BYTES


def _outcome(task: UploadTask[T], future: Future[tuple[Order, UploadedFile]]) -> tuple[T, Order, UploadedFile]:
    order, file = future.result()
    return task.tag, order, file
