"""A segment's chunks in the simulated store, and the driver of ``smq_core.sealer``."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from smq_core.entries import ChunkWrite, Entry
from smq_core.model import ChunkInfo, SealOutcome
from smq_core.sealer import ReadChunk, WriteChunk, WriteSeal
from support.sim import conditional
from support.sim.store import Store
from support.sim.world import SECOND, Process, Steps

LAYOUT = "layout"
INDEX = "index"


def folder(segment: str) -> str:
    return f"seg/{segment}/"


def path(segment: str, first: int) -> str:
    return f"seg/{segment}/{first:06d}"


@dataclass(frozen=True, slots=True)
class Stored:
    """The object of one chunk."""

    info: ChunkInfo
    entries: tuple[Entry, ...] = ()


@dataclass(slots=True)
class Chain:
    """One segment's chain as one process sees it. All methods are tasks; any may raise StoreUnavailable."""

    store: Store
    process: Process
    segment: str
    patience: int = 5 * SECOND

    def read(self, first: int) -> Steps:
        """The chunk at this offset, or None."""
        found = yield self.store.get(self.process, path(self.segment, first))
        return found[0] if found is not None else None

    def info(self, first: int) -> Steps:
        stored = yield from self.read(first)
        return stored.info if stored is not None else None

    def write(self, chunk: ChunkWrite, nonce: str = "") -> Steps:
        """True: there and mine. False: another's object has the name. Who tries again says the same nonce again."""
        writer, new = self._signature()
        info = ChunkInfo(self.segment, chunk.first, chunk.rows, writer, nonce or new, producers=chunk.producers)
        return (yield from self._create(Stored(info, chunk.entries)))

    def write_seal(self, end: int, producers: Any, lost: tuple[int, int] | None) -> Steps:
        info = ChunkInfo(self.segment, end, 0, *self._signature(), sealed=True, producers=producers, lost=lost)
        return (yield from self._create(Stored(info)))

    def find_seal(self, start: int = 0) -> Steps:
        """The outcome that the seal chunk fixed, or None while there is none."""
        at = start
        while True:
            info = yield from self.info(at)
            if info is None:
                return None
            if info.sealed:
                return outcome_of(info)
            at = info.end

    def drive(self, sealer: Generator[Any, Any, SealOutcome]) -> Steps:
        """Runs a sealer to its end."""
        answer: Any = None
        while True:
            try:
                wish = sealer.send(answer)
            except StopIteration as end:
                return end.value
            match wish:
                case ReadChunk(first):
                    answer = yield from self.info(first)
                case WriteChunk(chunk):
                    answer = yield from self.write(chunk)
                case WriteSeal(end, producers, lost):
                    answer = yield from self.write_seal(end, producers, lost)

    def _signature(self) -> tuple[str, str]:
        return self.process.name, self.store.world.unique("n")

    def _create(self, stored: Stored) -> Steps:
        info = stored.info
        result = yield from conditional.settle(
            self.store,
            self.process,
            path(self.segment, info.first),
            stored,
            None,
            lambda it: (it.info.writer, it.info.nonce) == (info.writer, info.nonce),
            self.patience,
        )
        mine = isinstance(result, conditional.Written)
        what = f"seal chunk at {info.first}" if info.sealed else f"chunk {info.first}..{info.end}"
        self.store.world.tell(self.process.name, self.segment, f"{what}: {'written' if mine else 'taken by another'}")
        return mine


def outcome_of(info: ChunkInfo) -> SealOutcome:
    return SealOutcome(info.segment, info.first, info.producers, info.lost)


def true_chain(store: Store, segment: str) -> list[Stored]:
    """The chain as it really is, for the checker."""
    found: list[Stored] = []
    at = 0
    while (stored := store.truth(path(segment, at))) is not None:
        found.append(stored)
        if stored.info.sealed:
            break
        at = stored.info.end
    return found
