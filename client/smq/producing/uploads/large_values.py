"""Uploads large values of single messages, each as a separate object, in the background.

A message waits in its segment's queue until its value is uploaded, and so does what is behind it, which keeps the order
of each key. An object that no message refers to in the end is collected like any other upload.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from smq.lock_order import ClientLock
from smq.producing.uploads.upload_targets import ValueStore
from smq_core.backoff import Backoff
from smq_core.errors import SmqError, StoreDenied, StoreUnavailable, Unavailable
from smq_storage.catalog import paths
from smq_storage.object_store.results import ObjectExists
from smq_storage.process.locks import make_lock
from smq_storage.uploads.large_values import LargeValue

log = logging.getLogger(__name__)

PARALLEL_UPLOADS = 4
MIN_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 2.0


@dataclass(eq=False, slots=True)
class PendingLargeValue:
    """A value on its way to the filer. The engine's lock guards the fields that change.

    ``reserved`` are the bytes that a message that timed out takes of the budget until the upload has ended.
    """

    value: LargeValue
    uploaded: bool = False
    error: SmqError | None = None
    reserved: int = 0


# A value to upload until that time (monotonic seconds).
_Task: TypeAlias = tuple[PendingLargeValue, bytes, float]


class LargeValueUploader:
    """Belongs to one producer. Safe from many threads.

    ``open_store`` is called for the first value. An upload without a clear answer is repeated for up to ``timeout``
    seconds after its message was handed over. ``on_done`` is called once for each upload, with its error if it failed.
    When ``has_failed``, the producer needs no uploads any more. The threads do not keep the process alive.
    """

    def __init__(
        self,
        *,
        topic_uid: str,
        producer: str,
        epoch: int,
        timeout: float,
        open_store: Callable[[], ValueStore],
        on_done: Callable[[PendingLargeValue, SmqError | None], None],
        has_failed: Callable[[], bool],
    ) -> None:
        self._topic_uid = topic_uid
        self._producer = producer
        self._epoch = epoch
        self._timeout = timeout
        self._open_store = open_store
        self._on_done = on_done
        self._has_failed = has_failed
        self._lock = make_lock(ClientLock.UPLOADS)
        self._store: ValueStore | None = None
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._threads = 0
        self._closing = threading.Event()

    def prepare(self, value: bytes) -> PendingLargeValue:
        """Names the object that will have this value."""
        name = paths.large_value_name(self._producer, self._epoch, uuid.uuid4().hex)
        return PendingLargeValue(LargeValue.of(name, value))

    def start(self, pending: PendingLargeValue, value: bytes, created_at: float) -> None:
        """Uploads the value. ``created_at`` is when the program handed it over (monotonic seconds)."""
        with self._lock:
            self._tasks.put((pending, value, created_at + self._timeout))
            if self._threads < PARALLEL_UPLOADS:
                self._threads += 1
                threading.Thread(target=self._work, name=f"smq-large-value-{self._threads}", daemon=True).start()

    def close(self) -> None:
        """Gives up what is not uploaded yet. Repeatable."""
        self._closing.set()
        with self._lock:
            for _ in range(self._threads):
                self._tasks.put(None)
            self._threads = PARALLEL_UPLOADS

    def _work(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """A separate function, so that the thread does not keep the value while it waits for the next one."""
        task = self._tasks.get()
        if task is not None:
            self._run(*task)
        return task is not None

    def _run(self, pending: PendingLargeValue, value: bytes, deadline: float) -> None:
        error: SmqError | None = None
        try:
            self._upload(paths.large_value(self._topic_uid, pending.value.name), value, deadline)
        except SmqError as failure:
            error = failure
        except Exception as failure:
            log.exception("a large value could not be uploaded")
            error = StoreUnavailable(f"a value could not be uploaded: {failure!r}")
        self._on_done(pending, error)

    def _upload(self, path: str, value: bytes, deadline: float) -> None:
        """Raises StoreUnavailable, StoreDenied."""
        backoff = Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        cause = "It waited for the uploads of other values."
        while True:
            too_late = time.monotonic() + backoff.seconds >= deadline
            if too_late or self._closing.wait(backoff.seconds) or self._has_failed():
                raise StoreUnavailable(
                    f"a value of {len(value)} bytes could not be uploaded to {path} within {self._timeout} s, so "
                    f"its message is not in the log: send it again. {cause}",
                    path=path,
                )
            try:
                self._opened_store().put_new(path, value)
                return
            except ObjectExists:
                return  # nobody else uses this name: an earlier attempt, whose answer was lost, wrote the same bytes
            except StoreDenied as error:
                raise StoreDenied(
                    f"the filer does not let this producer write {path}, so the message with this value is not in the "
                    f"log: give the producer a key that may write below {paths.LARGE_VALUES}/. {error.message}",
                    path=path,
                ) from None
            except Unavailable as error:  # the filer, or the leader that signs
                backoff.increase()
                cause = error.message
                log.info("the upload of %s failed: %s", path, cause)

    def _opened_store(self) -> ValueStore:
        with self._lock:
            if self._store is None:
                self._store = self._open_store()
            return self._store
