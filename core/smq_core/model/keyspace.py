"""The hash ring of a topic: from keys to partitions, and ranges of partitions.

A topic has P partitions, 0..P-1. A segment covers a half-open range of them. The topic's partitioner says which one a
key has: ``xxh3_64(key) % P``, or what Kafka's clients choose. Rows without a key get a partition that the producer
chooses for each batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import xxhash

from smq_core.model.kafka_partitioner import kafka_partition_of, kafka_partitions_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_PARTITIONS = 65_536
# Each of them is a partition for Kafka's clients, which keep lists of all of them and fetch them one by one.
MAX_KAFKA_PARTITIONS = 1_024
# So few are faster without numpy, each call of which costs as much as several keys.
FEW_KEYS = 64


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """The partitions ``start .. stop - 1``. Raises ValueError if the range is empty or negative."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise ValueError(f"a range needs 0 <= start < stop, but this one is [{self.start}, {self.stop})")

    def __contains__(self, partition: int) -> bool:
        return self.start <= partition < self.stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"

    def overlaps(self, other: KeyRange) -> bool:
        return self.start < other.stop and other.start < self.stop

    def split_at(self, boundaries: Sequence[int]) -> list[KeyRange]:
        """Splits this range at the boundaries, which must be ascending and strictly inside it."""
        edges = [self.start, *boundaries, self.stop]
        return [KeyRange(a, b) for a, b in itertools.pairwise(edges)]


def split_evenly(whole: KeyRange, parts: int) -> list[KeyRange]:
    """Splits a range into ``parts`` nearly equal ranges. Raises ValueError if it has fewer partitions than that."""
    if not 1 <= parts <= len(whole):
        raise ValueError(f"{whole} cannot be split into {parts} parts")
    edges = [whole.start + len(whole) * i // parts for i in range(parts + 1)]
    return [KeyRange(a, b) for a, b in itertools.pairwise(edges)]


def covers_exactly(ranges: Iterable[KeyRange], whole: KeyRange) -> bool:
    """True if the ranges make up ``whole`` without gaps or overlaps."""
    at = whole.start
    for part in sorted(ranges, key=lambda r: r.start):
        if part.start != at:
            return False
        at = part.stop
    return at == whole.stop


def merge_ranges(ranges: Iterable[KeyRange]) -> KeyRange:
    """Merges adjacent ranges into one. Raises ValueError if they are not contiguous."""
    ordered = sorted(ranges)
    whole = KeyRange(ordered[0].start, ordered[-1].stop)
    if not covers_exactly(ordered, whole):
        raise ValueError("only adjacent ranges can be merged: " + ", ".join(map(str, ordered)))
    return whole


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of one key: ``xxh3_64(key) % partitions``."""
    return xxhash.xxh3_64_intdigest(key) % partitions


def partitions_of(keys: Sequence[bytes], partitions: int) -> npt.NDArray[np.int32]:
    """The partitions of many keys. Returns int32 of shape (len(keys),)."""
    import numpy as np  # imported here because administrative commands do not need it

    if len(keys) <= FEW_KEYS:
        return np.array([partition_of(key, partitions) for key in keys], np.int32)
    digests = np.fromiter(map(xxhash.xxh3_64_intdigest, keys), np.uint64, len(keys))
    return (digests % np.uint64(partitions)).astype(np.int32)


class Partitioner(StrEnum):
    """How a topic's producers choose the partition of a key.

    With ``Kafka`` the partitions are those of Kafka's clients, and have Kafka's offsets. These clients may choose any
    partition for any key, so a reader of such a topic must not conclude the partition from the key.
    """

    HASH = "Hash"
    KAFKA = "Kafka"


@dataclass(frozen=True, slots=True)
class Ring:
    """All partitions of a topic, and the partitioner of its keys."""

    partitions: int
    partitioner: Partitioner = Partitioner.HASH

    def partition_of(self, key: bytes) -> int:
        """The partition of one key."""
        return (kafka_partition_of if self.partitioner is Partitioner.KAFKA else partition_of)(key, self.partitions)

    def partitions_of(self, keys: Sequence[bytes]) -> npt.NDArray[np.int32]:
        """The partitions of many keys. Returns int32 of shape (len(keys),)."""
        if self.partitioner is Partitioner.KAFKA:
            return kafka_partitions_of(keys, self.partitions)
        return partitions_of(keys, self.partitions)
