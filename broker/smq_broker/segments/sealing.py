"""Seals segments: fences the replica, then executes the pure sealer's operations on the segment's chain.

There is one run per segment, which all requests share. It continues until the seal chunk exists, even if the last
request was cancelled. The segment's file list is written after that, and nobody waits for it.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial

from smq_broker.file_lists.writer import FileListWriter
from smq_broker.rows.payloads import batches_with_append_times
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.flusher import chunk_info
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.journaling import remove_journal
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import SmqError, StoreStateUnknown, StoreUnavailable, Unavailable
from smq_core.model.chunk_info import ChunkInfo, SealOutcome
from smq_core.model.entities import Segment
from smq_core.replica.segment_replica import ReplicaState
from smq_core.sealing.chain_sealer import ReadChunk, StoreReply, StoreRequest, WriteChunk, WriteSeal
from smq_core.sealing.topic_deletion import REASON as TOPIC_DELETED
from smq_storage.catalog.layouts import read_layout
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy, WriteConflict
from smq_storage.object_store.store import Store
from smq_storage.process.locks import make_lock
from smq_storage.thread_runtime import make_event, monotonic, sleep

INITIAL_BACKOFF_SECONDS = 0.05
# Well below the leader's timeout for a seal request.
FLUSH_AHEAD_TIMEOUT_SECONDS = 1.0
# A smaller tail is not flushed ahead of the seal: the sealer writes it as quickly.
FLUSH_AHEAD_MIN_BYTES = 1 << 20
MAX_BACKOFF_SECONDS = 2.0

SEAL_TIMEOUT_SECONDS = 30.0
# How long the answer to a seal waits for the removal of the segment's journal. Only a bad disk needs longer.
REMOVAL_SECONDS = 1.0


@dataclass(slots=True)
class _SealRun:
    done: threading.Event = field(default_factory=make_event)
    error: SmqError | None = None


class SegmentSealer:
    """Safe from many threads."""

    def __init__(
        self,
        *,
        registry: SegmentRegistry,
        store: Store,
        broker_metrics: BrokerMetrics,
        threads: ThreadSupervisor,
        file_lists: FileListWriter,
    ) -> None:
        self._registry = registry
        self._store = store
        self._metrics = broker_metrics
        self._threads = threads
        self._file_lists = file_lists
        self._lock = make_lock()
        self._runs: weakref.WeakKeyDictionary[HostedSegment, _SealRun] = weakref.WeakKeyDictionary()

    def start(self, hosted: HostedSegment, successors: Sequence[Segment] = (), reason: str = "") -> _SealRun:
        """Fences the segment now and seals it in the background, unless a run is in progress.

        Raises Unavailable if the system starts no more threads. The segment stays fenced, and a later call seals it.
        """
        if successors:
            with hosted:
                hosted.successors = tuple(successors)
        with self._lock:
            run = self._runs.get(hosted)
            if run is not None:
                return run
            run = self._runs[hosted] = _SealRun()
        if hosted.machine.state is not ReplicaState.SEALED:
            hosted.log.info("seal.started", reason=reason)
        try:
            self.fence(hosted)
            self._threads.start(
                Task(kind="seal", run=partial(self._run, hosted, run), subject=hosted.name, restarts=False)
            )
        except Exception as error:
            self._end_run(hosted, run, error)
            raise
        return run

    def fence(self, hosted: HostedSegment) -> None:
        """Stops appends and acks for good. The leader seals a segment that a broker reports as fenced."""
        with hosted as machine:
            machine.fence()

    def seal(
        self,
        hosted: HostedSegment,
        successors: Sequence[Segment],
        reason: str,
        is_cancelled: Callable[[], bool],
    ) -> SealOutcome:
        """The outcome, once the seal chunk exists. Raises StoreStateUnknown after a timeout; the run continues."""
        if reason == TOPIC_DELETED:
            hosted.deleted = True
        if hosted.machine.tail_bytes > FLUSH_AHEAD_MIN_BYTES:
            self.flush_ahead(hosted)
        run = self.start(hosted, successors, reason)
        deadline = monotonic() + SEAL_TIMEOUT_SECONDS
        while not run.done.wait(0.25):
            if hosted.machine.outcome is not None:
                run.done.wait(REMOVAL_SECONDS)
                break
            if is_cancelled() or monotonic() > deadline:
                raise StoreStateUnknown(
                    f"{hosted.name} is fenced, but the filer did not accept its seal chunk in time: try again"
                )
        if run.error is not None:
            raise run.error
        outcome = hosted.machine.outcome
        assert outcome is not None
        return outcome

    def flush_ahead(self, hosted: HostedSegment) -> None:
        """Writes a primary's present tail while the segment is still open, so that the seal has little to write.

        Returns without an error if this takes long or the filer does not answer.
        """
        deadline = monotonic() + FLUSH_AHEAD_TIMEOUT_SECONDS
        with hosted as machine:
            if not hosted.is_primary or machine.state is not ReplicaState.OPEN:
                return
            target_offset = machine.watermark
            if machine.chain_end < target_offset:
                hosted.flush_schedule.request(target_offset)
        with hosted.lock:
            while (
                machine.chain_end < target_offset
                and machine.state is ReplicaState.OPEN
                and hosted.flush_schedule.unconfirmed_chunk is None
            ):
                left = deadline - monotonic()
                if left <= 0:
                    return
                hosted.capacity_freed.wait(min(left, 0.05))

    def follow_seal(self, hosted: HostedSegment) -> None:
        """Seals a segment that another replica or the leader has begun to seal, or reads how that ended."""
        self.start(hosted, reason="another process began to seal it")

    def seal_fenced(self) -> None:
        """Seals all fenced segments without waiting, if they are not being sealed."""
        for hosted in self._registry.all():
            if hosted.machine.state is ReplicaState.FENCED:
                self.start_at_exit(hosted)

    def start_at_exit(self, hosted: HostedSegment) -> None:
        """Seals a fenced segment in the background, because the broker ends."""
        self.start(hosted, reason="the broker ends")

    def outcome(self, topic: str, uid: str, segment: str) -> tuple[SealOutcome, tuple[Segment, ...]]:
        """The outcome and the known successors of any segment, from memory or from its seal chunk.

        Raises Unavailable if the segment is not sealed yet.
        """
        hosted = self._registry.find_sealed(uid, segment)
        if hosted is not None and hosted.machine.outcome is not None:
            return hosted.machine.outcome, hosted.successors
        info = ChunkChain(self._store, topic, uid, segment).read_seal_chunk()
        if info is None:
            raise Unavailable(f"{segment} is not sealed yet: try again")
        return info.outcome, ()

    def record_seal(self, hosted: HostedSegment, info: ChunkInfo) -> None:
        """Marks the segment as sealed, because a seal chunk that another replica or the leader wrote was read."""
        successors = hosted.successors or tuple(self._find_successors(hosted))
        with hosted as machine:
            if machine.state is not ReplicaState.SEALED:
                hosted.successors = successors
                machine.sealed(info.outcome)
        self._enqueue_file_list(hosted)
        remove_journal(hosted)

    def _enqueue_file_list(self, hosted: HostedSegment) -> None:
        """Lets the writer write the file list of a sealed segment, if this process knows all of its files."""
        outcome = hosted.machine.outcome
        file_list = hosted.files.take(outcome.end) if outcome is not None else None
        if file_list is not None and not hosted.deleted:
            self._file_lists.enqueue(hosted.topic, file_list)

    def _run(self, hosted: HostedSegment, run: _SealRun) -> None:
        try:
            with hosted.lock:
                # The flusher cancels a PUT in flight because the segment is fenced.
                if hosted.flush_schedule.unconfirmed_chunk is not None:
                    hosted.flush_schedule.unconfirmed_chunk = None
                    hosted.machine.chunk_failed()
                while hosted.machine.chunk_in_flight:
                    hosted.capacity_freed.wait(0.02)
                known_outcome = hosted.machine.outcome
            if known_outcome is None:
                outcome = self._drive(hosted, hosted.begin_seal())
                successors = hosted.successors or tuple(self._find_successors(hosted))
                with hosted as machine:
                    hosted.successors = hosted.successors or successors
                    if machine.state is not ReplicaState.SEALED:
                        machine.sealed(outcome)
                self._enqueue_file_list(hosted)
                self._metrics.seals.inc()
                hosted.log.info("seal.completed", end=outcome.end, producers=len(outcome.producers))
                remove_journal(hosted)  # last, because its disk may not answer
        except BaseException as error:
            self._end_run(hosted, run, error)
            if isinstance(error, SmqError):
                hosted.log.error("seal.failed", error=error.message)
            else:
                about = {"segment": hosted.name, "topic": hosted.topic.name}
                self._threads.record_failure("seal", "seal.failed", **about)
        else:
            self._end_run(hosted, run)

    def _end_run(self, hosted: HostedSegment, run: _SealRun, error: BaseException | None = None) -> None:
        """Answers those who wait for the run. After an error the next request begins another one."""
        if error is not None:
            run.error = error if isinstance(error, SmqError) else SmqError(f"sealing {hosted.name} failed: {error}")
            with self._lock:
                self._runs.pop(hosted, None)
        run.done.set()

    def _find_successors(self, hosted: HostedSegment) -> tuple[Segment, ...]:
        """The successors that the stored layout names; none if it cannot be read."""
        try:
            found = read_layout(self._store, hosted.topic.name, hosted.topic.uid)
        except SmqError:
            return ()
        return tuple(s for s in found[0].segments if hosted.name in s.predecessors) if found else ()

    def _drive(self, hosted: HostedSegment, sealer: Generator[StoreRequest, StoreReply, SealOutcome]) -> SealOutcome:
        answer: StoreReply = None
        while True:
            try:
                operation: StoreRequest = sealer.send(answer)
            except StopIteration as end:
                outcome: SealOutcome = end.value
                return outcome
            answer = self._execute(hosted, operation)

    def _execute(self, hosted: HostedSegment, operation: StoreRequest) -> StoreReply:
        """Retries one operation until it has a clear outcome. A chunk keeps its nonce in all attempts."""
        info: ChunkInfo | None = None
        if isinstance(operation, WriteChunk):
            info = chunk_info(hosted, operation.chunk)
        elif isinstance(operation, WriteSeal):
            info = operation.info(hosted.incarnation, uuid.uuid4().hex, hosted.segment.schema_version)
        pause = INITIAL_BACKOFF_SECONDS
        while True:
            try:
                return _attempt(hosted, operation, info)
            except StoreUnavailable as error:
                self._metrics.store_errors.inc()
                hosted.log.warning("seal.store_unavailable", error=error.message)
            sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)


def _attempt(hosted: HostedSegment, operation: StoreRequest, info: ChunkInfo | None) -> StoreReply:
    retry_policy = RetryPolicy(5.0)
    if isinstance(operation, ReadChunk):
        chunk = hosted.chain.stored(operation.first)
        if chunk is None:
            return None
        hosted.files.add(chunk)
        return chunk.info
    assert info is not None
    if isinstance(operation, WriteChunk):
        batches = batches_with_append_times(operation.chunk.entries)
        result = hosted.chain.put(info, batches, hosted.wire.chunk, retry_policy, hosted.wire.key)
        if isinstance(result, WriteConflict):
            return False
        hosted.files.add(result)
        return True
    return not isinstance(hosted.chain.put_seal(info, retry_policy, hosted.wire.chunk), WriteConflict)
