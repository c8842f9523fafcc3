"""Writes the manifests of segments that were sealed here, beside everything else.

Nothing waits for a manifest. One that is not written, because the filer does not answer or this process ends, is built
by the leader from the chunk chain.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

import structlog

from smq_broker.runtime.metrics import BrokerMetrics
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.errors import SmqError
from smq_core.manifests.segment_manifest import SegmentManifest
from smq_core.model.entities import Topic
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.process.locks import make_rlock
from smq_storage.tables.manifests import write_manifest

WRITE_TIMEOUT_SECONDS = 10.0
# More manifests do not wait here; the leader builds the others.
MAX_WAITING = 1000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    topic: Topic
    manifest: SegmentManifest


class ManifestWriter:
    """One thread writes one manifest after the other. Safe from many threads."""

    def __init__(self, store: Store, broker_metrics: BrokerMetrics, threads: ThreadSupervisor) -> None:
        self._store = store
        self._metrics = broker_metrics
        self._threads = threads
        self._queue: deque[_Waiting] = deque()
        self._writing = False
        self._changed = threading.Condition(make_rlock())

    def start(self) -> None:
        """Raises Unavailable if the system starts no more threads."""
        self._threads.start(Task("manifests", self._work, endless=True))

    def enqueue(self, topic: Topic, manifest: SegmentManifest) -> None:
        """Takes the manifest of a segment whose seal chunk exists."""
        with self._changed:
            if len(self._queue) < MAX_WAITING:
                self._queue.append(_Waiting(topic, manifest))
                self._changed.notify_all()

    def wait_until_idle(self, timeout: float) -> bool:
        """Whether everything was written, or given up, within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._writing, timeout)

    def _work(self) -> None:
        while True:
            self.write_next()

    def write_next(self) -> None:
        """Waits for the next manifest and writes it. An error leaves it to the leader."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue)
            waiting = self._queue.popleft()
            self._writing = True
        try:
            self._write(waiting.topic, waiting.manifest)
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _write(self, topic: Topic, manifest: SegmentManifest) -> None:
        about = {"topic": topic.name, "segment": manifest.segment, "files": len(manifest.files)}
        began = time.monotonic()
        try:
            write_manifest(self._store, topic.name, topic.uid, manifest, RetryPolicy(WRITE_TIMEOUT_SECONDS))
        except SmqError as error:
            log.warning("manifest.not_written", error=error.message, advice="the leader builds it", **about)
        except Exception:
            self._threads.record_failure("manifests", "manifest.not_written", **about)
        else:
            self._metrics.manifests.inc()
            log.info("manifest.written", ms=round(1000 * (time.monotonic() - began)), **about)
