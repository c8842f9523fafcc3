"""Writes tails to the filer as chunks, with one PUT in flight per segment and a few threads for all segments."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.memory.budgets import tails_to_flush
from smq_broker.rows.payloads import batches_with_append_times
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.flush_scheduling import CpuPressure
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.journaling import trim_journal
from smq_core.errors import StoreUnavailable
from smq_core.model.chunk_info import ChunkInfo
from smq_core.replica.log_entries import ChunkWrite
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.chunks.chain import StoredChunk
from smq_storage.object_store.conditional_writes import RetryPolicy, WriteConflict
from smq_storage.thread_runtime import make_queue, monotonic, sleep

WORKERS = 4
POLL_SECONDS = 0.1
PUT_TIMEOUT_SECONDS = 2.0
RETRY_AFTER_US = 500_000
RETRY_AFTER_FAILURE_US = 5_000_000


class Flusher:
    """``enqueue`` a segment when a chunk may be due. Every 100 ms ``poll`` checks the age of all segments' tails.

    If the filer does not answer, the chunk is kept (``FlushSchedule.unconfirmed_chunk``) and tried again under the
    same nonce. The nonce identifies the chunk as ours if the earlier attempt turns out to have been applied.

    A tail that waits longer than ``flush.interval``, because of ``flush.maxInterval``, costs one GET in each interval.

    ``on_chunk_taken`` is called when another writer's chunk or seal is at a segment's end.
    """

    def __init__(
        self,
        *,
        hosted: Callable[[], Iterable[HostedSegment]],
        memory: MemoryAccounting,
        broker_metrics: BrokerMetrics,
        threads: ThreadSupervisor,
        on_chunk_taken: Callable[[HostedSegment], None],
    ) -> None:
        self._hosted = hosted
        self._memory = memory
        self._metrics = broker_metrics
        self._threads = threads
        self._on_chunk_taken = on_chunk_taken
        self._cpu_pressure = CpuPressure()
        self._queue: SimpleQueue[HostedSegment] = make_queue()

    def start(self) -> None:
        """Raises Unavailable if the system starts no more threads."""
        workers = [Task(kind="flush", run=self._work, subject=str(number), endless=True) for number in range(WORKERS)]
        self._threads.start_all([*workers, Task(kind="flush-poll", run=self._poll_loop, endless=True)])

    def enqueue(self, hosted: HostedSegment) -> None:
        self._queue.put(hosted)

    def _poll_loop(self) -> None:
        while True:
            sleep(POLL_SECONDS)
            self.poll()

    def poll(self) -> None:
        """Queues the segments whose flush interval has passed and, under memory pressure, the largest ones."""
        primaries = [h for h in self._hosted() if h.is_primary and h.machine.tail_bytes]
        if not primaries:
            return  # a broker at rest should cost next to nothing
        flush_early: set[str] = set()
        now_seconds = monotonic()
        may_defer = self._cpu_pressure.poll(now_seconds) and not self._memory.under_pressure
        if self._memory.under_pressure:
            used, limit = self._memory.primary_usage()
            flush_early = set(tails_to_flush([(h.machine.tail_bytes, h.key) for h in primaries], used, limit))
        for hosted in primaries:
            with hosted as machine:
                now = hosted.clock.now()
                schedule = hosted.flush_schedule
                if schedule.not_before_us and now >= schedule.not_before_us:
                    schedule.not_before_us = 0
                if hosted.key in flush_early:
                    schedule.request_early()
                schedule.update_burst(now_seconds, may_defer)
                aged = machine.tail_is_aged(now)
                due = schedule.unconfirmed_chunk is not None or (aged and not machine.chunk_in_flight)
                schedule.check_chain_end = machine.chain_check_due(now) or schedule.check_chain_end
                due = due or schedule.check_chain_end
                if due and not schedule.queued and not schedule.not_before_us:
                    schedule.queued = True
                    self._queue.put(hosted)

    def flush_all(self) -> list[str]:
        """Requests a flush of all primaries. Returns the segments that are not written up to the watermark yet."""
        waiting = []
        for hosted in self._hosted():
            with hosted as machine:
                unwritten = machine.end > machine.chain_end if hosted.stored else machine.watermark > machine.chain_end
                if hosted.is_primary and machine.state is ReplicaState.OPEN and unwritten:
                    hosted.flush_schedule.request(machine.end)
                    waiting.append(hosted.name)
                elif machine.state is ReplicaState.FENCED:
                    waiting.append(hosted.name)
        return waiting

    def _work(self) -> None:
        while True:
            self.flush_next()

    def flush_next(self) -> None:
        """Waits for the next segment in the queue and writes its chunk. An unexpected error delays the next attempt."""
        hosted = self._queue.get()
        try:
            self._flush(hosted)
        except BaseException as error:
            with hosted as machine:
                hosted.flush_schedule.queued = False
                hosted.flush_schedule.not_before_us = hosted.clock.now() + RETRY_AFTER_FAILURE_US
                if hosted.flush_schedule.unconfirmed_chunk is None:
                    machine.chunk_failed()
            if not isinstance(error, Exception):
                raise
            self._threads.record_failure("flush", "flush.failed", segment=hosted.name, topic=hosted.topic.name)

    def _flush(self, hosted: HostedSegment) -> None:
        schedule = hosted.flush_schedule
        with hosted as machine:
            check_chain_end, schedule.check_chain_end = schedule.check_chain_end, False
            pending, schedule.unconfirmed_chunk = schedule.unconfirmed_chunk, None
            if pending is None:
                chunk = machine.next_chunk(hosted.clock.now(), force=schedule.requested)
                pending = (chunk, chunk_info(hosted, chunk)) if chunk is not None else None
            at = machine.chain_end
            check_chain_end = check_chain_end and pending is None and machine.state is ReplicaState.OPEN
            schedule.queued = check_chain_end  # no chunk is written while the chain's end is read
        if check_chain_end:
            self._check_chain_end(hosted, at)
        if pending is None:
            return
        chunk, info = pending
        hosted.filer_failure.began()
        try:
            with self._metrics.flush_seconds.time():
                result = write_chunk(hosted, chunk, info)
        except Exception as error:
            with hosted as machine:
                if machine.state is ReplicaState.OPEN:
                    # The PUT may still be applied. Under the same nonce a retry recognises it as ours.
                    schedule.unconfirmed_chunk = pending
                    schedule.not_before_us = hosted.clock.now() + RETRY_AFTER_US
                else:
                    # The segment was fenced meanwhile: the sealer reads whether the chunk was applied.
                    machine.chunk_failed()
            if not isinstance(error, StoreUnavailable):
                hosted.filer_failure.answered()
                raise
            self._metrics.store_errors.inc()
            hosted.filer_failure.failed(error.message)
            hosted.log.warning("chunk.store_unavailable", first=chunk.first, error=error.message)
            return
        hosted.filer_failure.answered()
        if isinstance(result, WriteConflict):
            self._offset_taken(hosted, result.info)
            return
        self._metrics.chunks.inc()
        hosted.files.add(result)
        hosted.log.debug("chunk.written", first=chunk.first, rows=chunk.rows)
        with hosted as machine:
            machine.chunk_written(chunk)
        trim_journal(hosted)

    def _check_chain_end(self, hosted: HostedSegment, at: int) -> None:
        """Looks where the next chunk will be. The next check is after the flush interval, also if this one fails."""
        self._metrics.chain_checks.inc()
        found = None
        try:
            found = hosted.chain.info(at)
        except StoreUnavailable as error:
            self._metrics.store_errors.inc()
            hosted.log.warning("chunk.store_unavailable", first=at, error=error.message)
        with hosted as machine:
            hosted.flush_schedule.queued = False
            is_open = machine.state is ReplicaState.OPEN
        if found is not None and is_open:
            self._offset_taken(hosted, found)

    def _offset_taken(self, hosted: HostedSegment, found: ChunkInfo) -> None:
        hosted.log.warning("chunk.offset_taken", first=found.first, writer=found.writer)
        with hosted as machine:
            machine.chunk_conflict()
        self._on_chunk_taken(hosted)


def chunk_info(hosted: HostedSegment, chunk: ChunkWrite) -> ChunkInfo:
    return chunk.info(hosted.name, hosted.incarnation, uuid.uuid4().hex, hosted.segment.schema_version)


def write_chunk(hosted: HostedSegment, chunk: ChunkWrite, info: ChunkInfo) -> StoredChunk | WriteConflict[ChunkInfo]:
    """One attempt of some seconds, cancelled when the segment is fenced. Raises StoreUnavailable."""
    retry_policy = RetryPolicy(PUT_TIMEOUT_SECONDS, wait=hosted.fenced.wait)
    batches = batches_with_append_times(chunk.entries)
    return hosted.chain.put(info, batches, hosted.wire.chunk, retry_policy, hosted.wire.key)
