"""Writes tails to the filer as chunks: one PUT in flight per segment, a few threads for all segments."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable

import structlog

from smq_broker.budget import to_relieve
from smq_broker.held import Held
from smq_broker.memory import Memory
from smq_broker.meters import Meters
from smq_broker.pace import Cores
from smq_broker.payloads import timed
from smq_core.entries import ChunkWrite
from smq_core.errors import StoreUnavailable
from smq_core.model import ChunkInfo
from smq_core.replica import State
from smq_storage.conditional import Patience, Taken

WORKERS = 4
TICK = 0.1
PATIENCE = 2.0
AFTER_ATTEMPT = 500_000
AFTER_DAMAGE = 5_000_000

log = structlog.get_logger()


class Flusher:
    """``kick`` a segment when a chunk may be due; every 100 ms all segments are looked at by the clock.

    While the filer is away the chunk that was begun is kept (``Held.unclear``) and tried again, under the same nonce:
    an attempt whose outcome is unknown is so recognised when it turns out to have been applied.
    """

    def __init__(
        self, held: Callable[[], Iterable[Held]], memory: Memory, meters: Meters, taken: Callable[[Held], None]
    ) -> None:
        self._held = held
        self._memory = memory
        self._meters = meters
        self._taken = taken
        self._cores = Cores()
        self._queue: queue.SimpleQueue[Held] = queue.SimpleQueue()

    def start(self) -> None:
        for number in range(WORKERS):
            threading.Thread(target=self._work, name=f"flush-{number}", daemon=True).start()
        threading.Thread(target=self._tick, name="flush-clock", daemon=True).start()

    def kick(self, held: Held) -> None:
        self._queue.put(held)

    def _tick(self) -> None:
        pause = threading.Event()
        while not pause.wait(TICK):
            try:
                self.look()
            except Exception:
                log.exception("flush.look_failed")

    def look(self) -> None:
        """Queues the segments whose time has come, and under memory pressure the largest ones."""
        primaries = [h for h in self._held() if h.is_primary and h.machine.tail_bytes]
        pressed: set[str] = set()
        moment = time.monotonic()
        may_wait = self._cores.look(moment) and not self._memory.under_pressure
        if self._memory.under_pressure:
            used, limit = self._memory.primary()
            pressed = set(to_relieve([(h.machine.tail_bytes, h.key) for h in primaries], used, limit))
        for held in primaries:
            with held as machine:
                now = held.clock.now()
                if held.flush_not_before and now >= held.flush_not_before:
                    held.flush_not_before = 0
                if held.key in pressed:
                    held.relieve()
                held.look_at_pace(moment, may_wait)
                aged = bool(machine.tail) and now - machine.tail[0].appended >= machine.config.flush_interval
                due = held.unclear is not None or (aged and not machine.chunk_in_flight)
                if due and not held.flush_queued and not held.flush_not_before:
                    held.flush_queued = True
                    self._queue.put(held)

    def _work(self) -> None:
        while True:
            held = self._queue.get()
            try:
                self._flush(held)
            except Exception:
                held.log.exception("flush.failed")
                with held as machine:
                    held.flush_not_before = held.clock.now() + AFTER_DAMAGE
                    if held.unclear is None:
                        machine.chunk_failed()

    def _flush(self, held: Held) -> None:
        with held as machine:
            held.flush_queued = False
            begun, held.unclear = held.unclear, None
            if begun is None:
                chunk = machine.next_chunk(held.clock.now(), force=held.flush_wanted)
                if chunk is None:
                    return
                begun = chunk, chunk_info(held, chunk)
        chunk, info = begun
        try:
            with self._meters.flush_seconds.time():
                result = write_chunk(held, chunk, info)
        except Exception as error:
            with held as machine:
                if machine.state is State.OPEN:
                    # The same chunk under the same nonce: the PUT may land yet, and must be known as ours.
                    held.unclear = begun
                    held.flush_not_before = held.clock.now() + AFTER_ATTEMPT
                else:
                    # Fenced meanwhile: the sealer finds out what became of it.
                    machine.chunk_failed()
            if not isinstance(error, StoreUnavailable):
                raise
            self._meters.store_errors.inc()
            held.log.warning("chunk.store_unavailable", first=chunk.first, error=error.message)
            return
        if isinstance(result, Taken):
            held.log.warning("chunk.taken", first=chunk.first, by=result.info.writer)
            with held as machine:
                machine.chunk_taken()
            self._taken(held)
            return
        self._meters.chunks.inc()
        held.log.debug("chunk.written", first=chunk.first, rows=chunk.rows)
        with held as machine:
            machine.chunk_written(chunk)


def chunk_info(held: Held, chunk: ChunkWrite) -> ChunkInfo:
    return ChunkInfo(
        segment=held.name,
        first=chunk.first,
        rows=chunk.rows,
        writer=held.incarnation,
        nonce=uuid.uuid4().hex,
        producers=chunk.producers,
    )


def write_chunk(held: Held, chunk: ChunkWrite, info: ChunkInfo) -> ChunkInfo | Taken[ChunkInfo]:
    """One attempt of some seconds, given up early when the segment is fenced. Raises StoreUnavailable."""
    patience = Patience(PATIENCE, wait=held.fenced.wait)
    return held.chain.put(info, timed(chunk.entries), held.wire.chunk, patience)
