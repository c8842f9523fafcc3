"""Budgets of tails, without locks or a clock.

Tails of primaries and tails of followers have separate budgets, so that two brokers that replicate to each other cannot
block each other. A tail counts twice. All of it may be as large as the disk of the journal allows. A part is in
memory, because no journal has it or its rows are small.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MIB = 1024 * 1024
MIN_CREDIT_BYTES = MIB
MAX_CREDIT_BYTES = 64 * MIB
MAX_READER_CACHE_BYTES = 4 * MIB
# A follower may grant this multiple of its budget, because most segments with the smallest credit are idle.
OVERCOMMIT_RATIO = 1.3
# The share of its budget that a follower does not use to raise credits.
RESERVE_SHARE = 0.25
PRIMARY_SHARE = 0.35
FOLLOWER_SHARE = 0.35
READER_SHARE = 0.1
PRESSURE_SHARE = 0.6
# The rest of a journal's size is for files that are used again, and for records that are being written.
JOURNAL_SHARE = 0.4


@dataclass(slots=True)
class PrimaryBudget:
    """Bytes of primaries' tails. Usage exceeds a limit by at most one batch.

    ``limit`` is of those in memory, ``tail_limit`` of all.
    """

    limit: int
    tail_limit: int
    used: int = 0
    in_memory: int = 0

    def reserve(self, nbytes: int) -> bool:
        """Reserves the bytes if there is capacity, or if nothing is in use."""
        if self.used and (self.in_memory + nbytes > self.limit or self.used + nbytes > self.tail_limit):
            return False
        self.change(nbytes, nbytes)
        return True

    def change(self, used: int, in_memory: int) -> None:
        """Records that the tails have grown or shrunk by this many bytes: in all, and in memory."""
        self.used += used
        self.in_memory += in_memory

    @property
    def under_pressure(self) -> bool:
        """Tails should be flushed before they are due: what is in the page cache counts, because it is memory, too."""
        return self.used > self.limit * PRESSURE_SHARE


@dataclass(slots=True)
class Credit:
    """``announced`` went to the primary last. ``reserved`` is larger until the primary keeps within a lower one.

    ``in_memory`` is what the tail has in memory.
    """

    initial: int
    announced: int
    reserved: int
    in_memory: int = 0


@dataclass(slots=True)
class FollowerBudget:
    """Credits granted to primaries on other brokers, by segment.

    A credit stays reserved until the segment is sealed, or until its primary confirms a smaller one. ``limit`` is of
    all credits, ``memory_limit`` of what tails have in memory.
    """

    limit: int
    memory_limit: int
    credits: dict[str, Credit] = field(default_factory=dict)
    in_memory: int = 0

    @property
    def granted_bytes(self) -> int:
        return sum(credit.reserved for credit in self.credits.values())

    def grant(self, segment: str) -> int | None:
        """The credit for this segment, or None if the budget is used up. A repeated call returns the same."""
        known = self.credits.get(segment)
        if known is not None:
            return known.announced
        granted_bytes = self.granted_bytes
        free = self.limit - granted_bytes
        if free < MIN_CREDIT_BYTES and granted_bytes + MIN_CREDIT_BYTES > self.limit * OVERCOMMIT_RATIO:
            return None
        initial = max(MIN_CREDIT_BYTES, min(MAX_CREDIT_BYTES, free // 4))
        self.credits[segment] = Credit(initial, initial, initial)
        return initial

    def adjust(self, segment: str, used: int, in_memory: int, acknowledged: int) -> int:
        """The credit from now on. ``used`` is the size of the tail, ``acknowledged`` the credit that the primary uses.

        While tails have more in memory than they may, each primary gets no more than it uses.

        It doubles if more than a third of it is used, as far as the budget allows. A quarter of the budget stays free
        for segments that open later. A third comes before the half at which a primary writes chunks during a burst.
        It halves, down to the initial credit, if less than an eighth is used. A change waits until the primary has
        acknowledged the last one.
        """
        credit = self.credits.get(segment)
        if credit is None:
            return 0
        self.in_memory += in_memory - credit.in_memory
        credit.in_memory = in_memory
        if acknowledged != credit.announced:
            return credit.announced
        credit.reserved = credit.announced
        if self.in_memory > self.memory_limit:
            credit.announced = min(credit.announced, max(used, MIN_CREDIT_BYTES))
        elif used > credit.announced // 3:
            free = self.limit - self.granted_bytes - int(self.limit * RESERVE_SHARE)
            credit.announced += max(0, min(credit.announced, free))
            credit.reserved = credit.announced
        elif used < credit.announced // 8 and credit.announced > credit.initial:
            credit.announced = max(credit.initial, credit.announced // 2)
        return credit.announced

    def release(self, segment: str) -> None:
        credit = self.credits.pop(segment, None)
        if credit is not None:
            self.in_memory -= credit.in_memory


@dataclass(slots=True)
class ReaderBudget:
    """Bytes of written entries that stay in memory for readers, by segment. A segment gets what is free."""

    limit: int
    granted: dict[str, int] = field(default_factory=dict)

    def grant(self, segment: str) -> int:
        """Bytes that may be kept for this segment's readers. A repeated call returns the same."""
        if segment not in self.granted:
            self.granted[segment] = min(MAX_READER_CACHE_BYTES, self.limit - sum(self.granted.values()))
        return self.granted[segment]

    def release(self, segment: str) -> None:
        self.granted.pop(segment, None)


def budgets(memory: int, journal: int) -> tuple[PrimaryBudget, FollowerBudget, ReaderBudget]:
    """The budgets of a process with this much memory, and this much disk for its journal, or 0 if it has none.

    The rest of the memory is for encoding chunks and for batches in transit.
    """
    primary, follower, tail = int(memory * PRIMARY_SHARE), int(memory * FOLLOWER_SHARE), int(journal * JOURNAL_SHARE)
    return (
        PrimaryBudget(primary, max(primary, tail)),
        FollowerBudget(max(follower, tail), follower),
        ReaderBudget(int(memory * READER_SHARE)),
    )


def tails_to_flush(tails: Iterable[tuple[int, str]], used: int, limit: int) -> list[str]:
    """The tails, given as (bytes, segment), to flush early under pressure: the largest ones, until half is free."""
    chosen: list[str] = []
    excess = used - limit // 2
    for nbytes, segment in sorted(tails, reverse=True):
        if excess <= 0 or nbytes == 0:
            break
        chosen.append(segment)
        excess -= nbytes
    return chosen
