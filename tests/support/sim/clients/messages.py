"""Messages and batches of the simulation."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from smq_core.invariants import Message
from smq_core.model.entities import Segment
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import Entry, ProducerLimits
from support.sim.clients.uploads import REFERENCE_BYTES, SimulatedUpload

BYTES_PER_MESSAGE = 100


class SimulatedSubBatch(NamedTuple):
    """Rows of one batch that belong to one segment, with the columns of one version of the topic's schema.

    ``serial`` counts the producer's batches.
    With an ``upload`` the rows are there, in the order of their partitions. A ``large_value`` is the name of the object
    with the value of the only message.
    """

    serial: int
    messages: tuple[Message, ...]
    version: int = 0
    upload: SimulatedUpload | None = None
    large_value: str = ""

    @property
    def nbytes(self) -> int:
        return BYTES_PER_MESSAGE * len(self.messages) if self.upload is None else REFERENCE_BYTES

    @property
    def partitions(self) -> list[int]:
        return [m.partition for m in self.messages]

    def cut(self, partitions: Container[int]) -> SimulatedSubBatch | None:
        """The rows of these partitions, in order."""
        kept = tuple(m for m in self.messages if m.partition in partitions)
        if not kept or self.upload is None:
            return self._replace(messages=kept) if kept else None
        before = self.messages.index(kept[0])
        return self._replace(messages=kept, upload=self.upload._replace(first_row=self.upload.first_row + before))

    @property
    def created_at(self) -> float:
        return 0.0

    @property
    def is_large(self) -> bool:
        return self.upload is not None or bool(self.large_value)

    def count_partitions(self, first: int, rows: int, range_: KeyRange, counts: list[int]) -> None:
        """As a ``Block``."""
        for message in self.messages[first : first + rows]:
            counts[(message.partition - range_.start) * len(counts) // len(range_)] += 1

    def fits(self, segment: Segment) -> bool:
        """Whether the segment has a place for all values. Every second batch needs nothing new."""
        return self.version <= segment.schema_version or (self.upload is None and self.serial % 2 == 0)

    def reshaped(self, version: int) -> SimulatedSubBatch:
        """The rows with the columns of another version."""
        return self._replace(version=version)


NO_LIMITS = ProducerLimits()


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """The random choices of a history."""

    partitions: int = 8
    credit: int = 3000
    primary_budget: int = 6000
    flush_bytes: int = 2000
    flush_interval: int = 2_000_000
    flush_max_interval: int | None = None
    limits: ProducerLimits = NO_LIMITS


def rows(entries: Iterable[Entry]) -> list[tuple[int, Message]]:
    """(offset, message) of each row."""
    found = []
    for entry in entries:
        sub_batch = entry.batch.payload
        assert isinstance(sub_batch, SimulatedSubBatch)
        found += [(entry.first + i, m) for i, m in enumerate(sub_batch.messages)]
    return found
