"""The consumer as a program sees it: batches of segments, in an order that keeps every key's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from smq.batch import Batch

if TYPE_CHECKING:
    from smq.leader import LeaderLink
    from smq.view import TopicView

Start = Literal["earliest", "latest"] | datetime | Mapping[str, int]


class Consumer:
    """Made by :meth:`smq.Client.consumer`. For one thread at a time; iterate it, or call ``poll``.

    A segment is read only when all its predecessors have been read to their ends, so every key's messages come in the
    order in which they were sent, through splits, merges and failovers.
    """

    def __init__(
        self,
        view: TopicView,
        leader: LeaderLink,
        *,
        group: str | None,
        start: Start,
        on_loss: Literal["fail", "skip"],
        auto_commit: bool,
        max_bytes: int,
        prefetch_bytes: int,
    ) -> None:
        raise NotImplementedError

    def poll(self, timeout: float | None = None) -> Batch | None:
        """The next batch, or None when none came within ``timeout`` seconds (None: no limit).

        Raises DataLost (``on_loss="fail"``), UnknownTopic when the topic was deleted, InvalidRequest when closed.
        """
        raise NotImplementedError

    def __iter__(self) -> Iterator[Batch]:
        """Batches without end, until the consumer is closed."""
        raise NotImplementedError

    def commit(self, positions: Mapping[str, int] | None = None) -> dict[str, int]:
        """Commits for the group: the given positions, or everything handed out so far. Returns what was committed.

        Segments that went to another member meanwhile are left out: it reads them again from the last commit. Raises
        InvalidRequest without a group, Unavailable when no leader answers.
        """
        raise NotImplementedError

    @property
    def positions(self) -> dict[str, int]:
        """How far this consumer has handed out, ``{segment: next offset}``."""
        raise NotImplementedError

    @property
    def assignment(self) -> frozenset[str]:
        """The segments that this consumer reads now."""
        raise NotImplementedError

    def at_end(self) -> bool:
        """True when all that was durable when last heard of has been handed out. A moment later there may be more."""
        raise NotImplementedError

    def close(self) -> None:
        """Leaves the group (after a last commit with ``auto_commit``) and ends all reading. Repeatable."""
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        raise NotImplementedError

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
