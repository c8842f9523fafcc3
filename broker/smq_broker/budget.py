"""Memory budgets, as arithmetic: who may hold how many bytes. No locks, no clock.

Tails that this process holds as a primary and tails that it holds as a follower have separate budgets, so that two
brokers that follow each other cannot block each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MIB = 1024 * 1024
SMALLEST_CREDIT = MIB
LARGEST_CREDIT = 64 * MIB
LARGEST_KEPT = 4 * MIB
PROMISED = 1.3
"""Of its budget, what a follower may promise: the smallest credits go beyond it, for most segments are at rest."""
KEPT_FOR_OTHERS = 0.25
"""Of its budget, what a follower does not use to raise credits."""
PRIMARY_SHARE = 0.35
FOLLOWER_SHARE = 0.35
READER_SHARE = 0.1
PRESSURE = 0.6


@dataclass(slots=True)
class PrimaryBudget:
    """Bytes of tails that producers filled. What is used may exceed the limit by one batch, never more."""

    limit: int
    used: int = 0

    def reserve(self, nbytes: int) -> bool:
        """Takes the bytes if there is room, or if nothing else is held."""
        if self.used and self.used + nbytes > self.limit:
            return False
        self.used += nbytes
        return True

    def change(self, delta: int) -> None:
        """The tails have grown or shrunk by so many bytes."""
        self.used += delta

    @property
    def under_pressure(self) -> bool:
        """So full that tails should be written out before they are due."""
        return self.used > self.limit * PRESSURE


@dataclass(slots=True)
class Credit:
    """What one segment's primary was told last, and what is reckoned with: more, until it keeps within a lower one."""

    first: int
    told: int
    reckoned: int


@dataclass(slots=True)
class FollowerBudget:
    """Bytes promised to primaries elsewhere, by segment. A promise holds until the segment is let go, or until its
    primary says that it keeps within a smaller one."""

    limit: int
    credits: dict[str, Credit] = field(default_factory=dict)

    @property
    def promised(self) -> int:
        return sum(credit.reckoned for credit in self.credits.values())

    def grant(self, segment: str) -> int | None:
        """The credit for this segment (again, the same), or None when the budget is used up."""
        known = self.credits.get(segment)
        if known is not None:
            return known.told
        promised = self.promised
        free = self.limit - promised
        if free < SMALLEST_CREDIT and promised + SMALLEST_CREDIT > self.limit * PROMISED:
            return None
        first = max(SMALLEST_CREDIT, min(LARGEST_CREDIT, free // 4))
        self.credits[segment] = Credit(first, first, first)
        return first

    def adjust(self, segment: str, used: int, kept: int) -> int:
        """The credit from now on, given the segment's tail here and the credit that its primary says it keeps within.

        It doubles when a third of it is used, out of what is free beyond a quarter of the budget: that is for segments
        that open later. So it is raised before half of it is used, where a primary begins to write chunks in a burst.
        It halves when an eighth is used, down to the first one. One change at a time: there is no other until the
        primary keeps within this one.
        """
        credit = self.credits.get(segment)
        if credit is None:
            return 0
        if kept != credit.told:
            return credit.told
        credit.reckoned = credit.told
        if used > credit.told // 3:
            free = self.limit - self.promised - int(self.limit * KEPT_FOR_OTHERS)
            credit.told += max(0, min(credit.told, free))
            credit.reckoned = credit.told
        elif used < credit.told // 8 and credit.told > credit.first:
            credit.told = max(credit.first, credit.told // 2)
        return credit.told

    def release(self, segment: str) -> None:
        self.credits.pop(segment, None)


@dataclass(slots=True)
class ReaderBudget:
    """Bytes kept for readers below the tail's start, by segment: a convenience, so what is left is all one gets."""

    limit: int
    given: dict[str, int] = field(default_factory=dict)

    def give(self, segment: str) -> int:
        """What may be kept for this segment's readers; the same when it is asked again."""
        if segment not in self.given:
            self.given[segment] = min(LARGEST_KEPT, self.limit - sum(self.given.values()))
        return self.given[segment]

    def release(self, segment: str) -> None:
        self.given.pop(segment, None)


def budgets(memory: int) -> tuple[PrimaryBudget, FollowerBudget, ReaderBudget]:
    """The budgets of a process with so much memory; the rest is for encoding chunks and for what is on its way."""
    return (
        PrimaryBudget(int(memory * PRIMARY_SHARE)),
        FollowerBudget(int(memory * FOLLOWER_SHARE)),
        ReaderBudget(int(memory * READER_SHARE)),
    )


def to_relieve(tails: Iterable[tuple[int, str]], used: int, limit: int) -> list[str]:
    """Which tails, given as (bytes, segment), to write out early under pressure: the largest ones, down to half."""
    chosen: list[str] = []
    excess = used - limit // 2
    for nbytes, segment in sorted(tails, reverse=True):
        if excess <= 0 or nbytes == 0:
            break
        chosen.append(segment)
        excess -= nbytes
    return chosen
