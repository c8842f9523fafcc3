"""Writes the file lists of segments that were sealed here, beside everything else.

Nothing waits for a file list. One that is not written, because the filer does not answer or this process ends, is built
by the leader from the chunk chain.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import structlog

from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.errors import SmqError
from smq_core.file_lists.file_list import FileList
from smq_core.model.entities import Topic
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.process.locks import make_rlock
from smq_storage.tables.file_lists import write_file_list
from smq_storage.thread_runtime import make_condition, monotonic

WRITE_TIMEOUT_SECONDS = 10.0
# More file lists do not wait here; the leader builds the others.
MAX_WAITING = 1000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    topic: Topic
    file_list: FileList


class FileListWriter:
    """One thread writes one file list after the other. Safe from many threads."""

    def __init__(self, store: Store, broker_metrics: BrokerMetrics, threads: ThreadSupervisor) -> None:
        self._store = store
        self._metrics = broker_metrics
        self._threads = threads
        self._queue: deque[_Waiting] = deque()
        self._writing = False
        self._changed = make_condition(make_rlock())

    def start(self) -> None:
        """Raises Unavailable if the system starts no more threads."""
        self._threads.start(Task(kind="file-lists", run=self._work, endless=True))

    def enqueue(self, topic: Topic, file_list: FileList) -> None:
        """Takes the file list of a segment whose seal chunk exists."""
        with self._changed:
            if len(self._queue) < MAX_WAITING:
                self._queue.append(_Waiting(topic, file_list))
                self._changed.notify_all()

    def wait_until_idle(self, timeout: float) -> bool:
        """Whether everything was written, or given up, within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._writing, timeout)

    def _work(self) -> None:
        while True:
            self.write_next()

    def write_next(self) -> None:
        """Waits for the next file list and writes it. An error leaves it to the leader."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue)
            waiting = self._queue.popleft()
            self._writing = True
        try:
            self._write(waiting.topic, waiting.file_list)
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _write(self, topic: Topic, file_list: FileList) -> None:
        about = {"topic": topic.name, "segment": file_list.segment, "files": len(file_list.files)}
        began = monotonic()
        try:
            write_file_list(self._store, topic.name, topic.uid, file_list, RetryPolicy(WRITE_TIMEOUT_SECONDS))
        except SmqError as error:
            log.warning("file_list.not_written", error=error.message, advice="the leader builds it", **about)
        except Exception:
            self._threads.record_failure("file-lists", "file_list.not_written", **about)
        else:
            self._metrics.file_lists.inc()
            log.info("file_list.written", ms=round(1000 * (monotonic() - began)), **about)
