"""Seals segments: fences the replica, then drives the pure sealer against the segment's chain.

One run per segment, however many ask; it goes on until the seal chunk exists, even when nobody waits any more.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from smq_broker.flusher import chunk_info
from smq_broker.held import Held
from smq_broker.meters import Meters
from smq_broker.payloads import timed
from smq_core.errors import SmqError, StoreUnavailable
from smq_core.model import ChunkInfo, SealOutcome, Segment
from smq_core.replica import State
from smq_core.sealer import Answer, ReadChunk, Wish, WriteChunk, WriteSeal, seal
from smq_core.sealer import Held as SealerHeld
from smq_storage.conditional import Patience, Taken

FIRST_PAUSE = 0.05
WRITE_AHEAD = 1.0
"""Well below the leader's patience with a primary that is asked to seal."""
LITTLE = 1 << 20
"""So many bytes are written as quickly when the segment is fenced already."""
LONGEST_PAUSE = 2.0

FindSuccessors = Callable[[Held], Sequence[Segment]]


@dataclass(slots=True)
class _Run:
    done: threading.Event = field(default_factory=threading.Event)
    error: SmqError | None = None


class Sealers:
    """``find_successors`` looks a sealed segment's successors up when nobody told them; it must not raise."""

    def __init__(self, meters: Meters, find_successors: FindSuccessors) -> None:
        self._meters = meters
        self._find_successors = find_successors
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def start(self, held: Held, successors: Sequence[Segment] = (), reason: str = "") -> _Run:
        """Fences the segment now and seals it in the background; a run that is under way goes on."""
        if successors:
            with held:
                held.successors = tuple(successors)
        with self._lock:
            run = self._runs.get(held.key)
            if run is not None:
                return run
            run = self._runs[held.key] = _Run()
        if held.machine.state is not State.SEALED:
            held.log.info("seal.begins", reason=reason)
        with held as machine:
            machine.fence()
        threading.Thread(target=self._run, args=(held, run), name=f"seal-{held.name}", daemon=True).start()
        return run

    def seal(
        self, held: Held, successors: Sequence[Segment], reason: str, *, seconds: float, given_up: Callable[[], bool]
    ) -> SealOutcome:
        """The outcome, once the seal chunk exists. Raises StoreUnavailable after ``seconds``; the run goes on."""
        if held.machine.tail_bytes > LITTLE:
            self.write_ahead(held)
        run = self.start(held, successors, reason)
        until = time.monotonic() + seconds
        while not run.done.wait(0.25):
            if given_up() or time.monotonic() > until:
                raise StoreUnavailable(
                    f"{held.name} is fenced, but the filer did not take its seal in time: ask again",
                    segment=held.name,
                )
        if run.error is not None:
            raise run.error
        outcome = held.machine.outcome
        assert outcome is not None
        return outcome

    def write_ahead(self, held: Held) -> None:
        """Writes what a primary's tail holds now, while it still takes more: a seal after that has little to write.

        Given up when it takes long or the filer does not answer.
        """
        until = time.monotonic() + WRITE_AHEAD
        with held as machine:
            if not held.is_primary or machine.state is not State.OPEN:
                return
            goal = machine.watermark
            if machine.chain_end < goal:
                held.ask_flush(goal)
        with held.lock:
            while machine.chain_end < goal and machine.state is State.OPEN and held.unclear is None:
                left = until - time.monotonic()
                if left <= 0:
                    return
                held.room.wait(min(left, 0.05))

    def found(self, held: Held, info: ChunkInfo) -> None:
        """Somebody else's seal chunk was read: the segment is sealed, nothing needs to be written."""
        successors = held.successors or tuple(self._find_successors(held))
        with held as machine:
            if machine.state is not State.SEALED:
                held.successors = successors
                machine.sealed(SealOutcome(held.name, info.first, info.producers, info.lost))

    def _run(self, held: Held, run: _Run) -> None:
        try:
            with held.lock:
                # A chunk that is on its way is given up by its writer now that the segment is fenced.
                if held.unclear is not None:
                    held.unclear = None
                    held.machine.chunk_failed()
                while held.machine.chunk_in_flight:
                    held.room.wait(0.02)
                known = held.machine.outcome
                sealer = seal(held.name, SealerHeld.of(held.machine))
            if known is None:
                outcome = self._drive(held, sealer)
                successors = held.successors or tuple(self._find_successors(held))
                with held as machine:
                    held.successors = held.successors or successors
                    if machine.state is not State.SEALED:
                        machine.sealed(outcome)
                        self._meters.seals.inc()
                held.log.info("seal.done", end=outcome.end, producers=len(outcome.producers))
        except SmqError as error:
            held.log.error("seal.failed", error=error.message)
            run.error = error
        except Exception as error:
            held.log.exception("seal.failed")
            run.error = SmqError(f"sealing {held.name} failed: {error}")
        finally:
            if run.error is not None:
                with self._lock:
                    self._runs.pop(held.key, None)
            run.done.set()

    def forget(self, key: str) -> None:
        with self._lock:
            self._runs.pop(key, None)

    def _drive(self, held: Held, sealer: Generator[Wish, Answer, SealOutcome]) -> SealOutcome:
        answer: Answer = None
        while True:
            try:
                wish: Wish = sealer.send(answer)
            except StopIteration as end:
                outcome: SealOutcome = end.value
                return outcome
            answer = self._fulfil(held, wish)

    def _fulfil(self, held: Held, wish: Wish) -> Answer:
        """Tries one wish until it has a clear answer. A chunk keeps its nonce through all tries."""
        info: ChunkInfo | None = None
        if isinstance(wish, WriteChunk):
            info = chunk_info(held, wish.chunk)
        elif isinstance(wish, WriteSeal):
            info = ChunkInfo(
                segment=held.name,
                first=wish.end,
                rows=0,
                writer=held.incarnation,
                nonce=uuid.uuid4().hex,
                sealed=True,
                producers=wish.producers,
                lost=wish.lost,
            )
        pause = FIRST_PAUSE
        while True:
            try:
                return _attempt(held, wish, info)
            except StoreUnavailable as error:
                self._meters.store_errors.inc()
                held.log.warning("seal.store_unavailable", error=error.message)
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


def _attempt(held: Held, wish: Wish, info: ChunkInfo | None) -> Answer:
    patience = Patience(5.0)
    if isinstance(wish, ReadChunk):
        return held.chain.info(wish.first)
    assert info is not None
    if isinstance(wish, WriteChunk):
        return not isinstance(held.chain.put(info, timed(wish.chunk.entries), held.wire.chunk, patience), Taken)
    return not isinstance(held.chain.put_seal(info, patience, held.wire.chunk), Taken)
