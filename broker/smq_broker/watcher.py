"""Looks into the filer for seal chunks: of the predecessors of a segment that waits to open, and of segments that
somebody else may have sealed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import structlog

from smq_broker.held import Held
from smq_core.errors import SmqError
from smq_core.model import ChunkInfo
from smq_core.replica import State
from smq_storage.chain import Chain

FIRST_POLL = 0.05
LONGEST_POLL = 0.5
FAST_FOR = 3.0
CHECK_EVERY = 0.1
CHECKERS = 2

log = structlog.get_logger()


class ChainEnd:
    """Follows a chain that grows, one GET at its end each time it is looked at."""

    def __init__(self, chain: Chain, start: int | None = None) -> None:
        self._chain = chain
        self._start = start
        self._at: int | None = None

    def sealed(self) -> ChunkInfo | None:
        """The seal chunk, or None so far. Raises StoreUnavailable, ChunkDamaged."""
        if self._at is None:
            self._at = self._chain.latest_hint() if self._start is None else self._start
        for info in self._chain.walk(self._at):
            if info.sealed:
                return info
            self._at = info.end
        return None


def wait_for_predecessors(
    held: Held, chain_of: Callable[[str], Chain], known: Callable[[str], bool], started: Callable[[], None]
) -> None:
    """Opens a waiting segment when all its predecessors' seal chunks were read; ends early when it is fenced.

    ``known`` says that this process itself has read or written that segment's seal chunk. Looks now and then, and at
    once when a producer comes: most come when they have been told of the seal. Blocks; run it in a thread.
    """
    ends = {name: ChainEnd(chain_of(name)) for name in held.segment.predecessors}
    began = time.monotonic()
    pause = FIRST_POLL
    while held.machine.state is State.WAITING:
        for name in sorted(held.machine.unread_predecessors):
            try:
                sealed = known(name) or ends[name].sealed() is not None
            except SmqError as error:
                held.log.warning("predecessor.unreadable", predecessor=name, error=error.message)
                pause = LONGEST_POLL
                continue
            if sealed:
                with held as machine:
                    machine.predecessor_sealed(name)
        if time.monotonic() - began > FAST_FOR:
            pause = min(pause * 1.5, LONGEST_POLL)
        if held.machine.state is State.WAITING:
            held.nudged.wait(pause)
            held.nudged.clear()
    started()


class SealWatcher:
    """Checks suspects against the filer: followers whose primary has left, and segments that the leader no longer
    names. ``found`` is called with the seal chunk."""

    def __init__(self, held: Callable[[], Iterable[Held]], found: Callable[[Held, ChunkInfo], None]) -> None:
        self._held = held
        self._found = found
        self._pool = ThreadPoolExecutor(CHECKERS, thread_name_prefix="seal-check")
        self._pauses: dict[str, float] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="seal-watch", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(CHECK_EVERY):
            try:
                self._look()
            except Exception:
                log.exception("seal_watch.failed")

    def _look(self) -> None:
        now = time.monotonic()
        for held in self._held():
            if held.machine.state is State.SEALED:
                self._pauses.pop(held.key, None)
                continue
            suspicious = held.unnamed or (held.primary_left and not held.primary_streams)
            if not suspicious:
                self._pauses.pop(held.key, None)
                held.seal_check_at = 0.0
            elif now >= held.seal_check_at:
                wait = self._pauses.get(held.key, 0.1)
                self._pauses[held.key] = min(wait * 2, 5.0)
                held.seal_check_at = now + wait
                self._pool.submit(self._check, held)

    def _check(self, held: Held) -> None:
        try:
            info = ChainEnd(held.chain, held.machine.chain_end).sealed()
            if info is not None:
                self._found(held, info)
        except SmqError as error:
            held.log.warning("seal_check.failed", error=error.message)
        except Exception:
            held.log.exception("seal_check.failed")
