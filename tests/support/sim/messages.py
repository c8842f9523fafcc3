"""What travels in the simulation: messages and batches of them."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from smq_core.entries import Entry
from smq_core.invariants import Message

BYTES_PER_MESSAGE = 100


class Piece(NamedTuple):
    """Rows of one batch that belong to one segment. ``serial`` counts the producer's batches."""

    serial: int
    messages: tuple[Message, ...]

    @property
    def nbytes(self) -> int:
        return BYTES_PER_MESSAGE * len(self.messages)

    @property
    def partitions(self) -> list[int]:
        return [m.partition for m in self.messages]

    def cut(self, partitions: Container[int]) -> Piece | None:
        """The rows of these partitions, in order."""
        kept = tuple(m for m in self.messages if m.partition in partitions)
        return Piece(self.serial, kept) if kept else None


@dataclass(frozen=True, slots=True)
class Settings:
    """What is drawn once for a history."""

    partitions: int = 8
    credit: int = 3000
    primary_budget: int = 6000
    flush_bytes: int = 2000
    flush_interval: int = 2_000_000
    patience: int = 5_000_000


def rows(entries: Iterable[Entry]) -> list[tuple[int, Message]]:
    """(offset, message) of each row."""
    found = []
    for entry in entries:
        piece = entry.batch.payload
        assert isinstance(piece, Piece)
        found += [(entry.first + i, m) for i, m in enumerate(piece.messages)]
    return found
