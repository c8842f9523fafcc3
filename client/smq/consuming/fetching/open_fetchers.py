"""The segments that a consumer reads now, each with its fetcher, and which of them are paused."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from smq.consuming.fetching.fetch_plan import FetchPlan
from smq.consuming.fetching.fetcher import Fetcher
from smq.consuming.fetching.large_values import LargeValueReader
from smq.consuming.fetching.prefetch_buffer import PrefetchBuffer
from smq.consuming.fetching.shared_tails import SharedTails
from smq.transport.topic_view import TopicView
from smq_core.errors import StoreUnavailable
from smq_storage.process.locks import requires_lock


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """``large_values`` is None if a fetcher leaves them to the program."""

    view: TopicView
    max_bytes: int
    large_values: LargeValueReader | None = None
    shared_tails: SharedTails | None = None


class OpenFetchers:
    """Not safe from threads: the caller holds the buffer's ``changed``, except for ``check_liveness`` and ``join``."""

    def __init__(self, buffer: PrefetchBuffer[Fetcher], settings: FetchSettings) -> None:
        self._buffer = buffer
        self._settings = settings
        self._fetchers: dict[str, Fetcher] = {}
        self._stopping: list[Fetcher] = []
        self._ordinal = random.randrange(1 << 16)
        self.paused: set[str] = set()

    def __contains__(self, segment: object) -> bool:
        return segment in self._fetchers

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._fetchers))

    def __len__(self) -> int:
        return len(self._fetchers)

    @requires_lock("_buffer.changed")
    def is_open(self, fetcher: Fetcher) -> bool:
        """False if it was stopped; another one may read its segment since."""
        return self._fetchers.get(fetcher.segment) is fetcher

    @requires_lock("_buffer.changed")
    def all(self) -> tuple[Fetcher, ...]:
        return tuple(self._fetchers.values())

    @requires_lock("_buffer.changed")
    def start(self, plan: FetchPlan) -> None:
        """Begins to read a segment that is not open. A paused one stays paused."""
        settings = self._settings
        self._fetchers[plan.segment] = Fetcher(
            view=settings.view,
            buffer=self._buffer,
            fetch_plan=plan,
            max_bytes=settings.max_bytes,
            ordinal=self._ordinal,
            large_values=settings.large_values,
            shared_tails=settings.shared_tails,
        )
        self._ordinal += 1
        if plan.segment in self.paused:
            self._buffer.pause(self._fetchers[plan.segment])

    @requires_lock("_buffer.changed")
    def stop(self, segment: str) -> None:
        """Ends reading an open segment, and drops what was read ahead of it."""
        fetcher = self._fetchers.pop(segment)
        fetcher.stop()
        self._stopping = [it for it in self._stopping if it.alive] + [fetcher]

    @requires_lock("_buffer.changed")
    def take_all(self) -> list[Fetcher]:
        """Leaves none open. The caller stops and joins these, without the lock."""
        taken = [*self._fetchers.values(), *self._stopping]
        self._fetchers, self._stopping = {}, []
        return taken

    @requires_lock("_buffer.changed")
    def pause(self, segments: Collection[str]) -> None:
        """Withholds what is read of these open segments."""
        self.paused |= set(segments)
        for segment in segments:
            self._buffer.pause(self._fetchers[segment])

    @requires_lock("_buffer.changed")
    def resume(self, segments: Collection[str]) -> None:
        """Ends the pause of those of these open segments that are paused."""
        for segment in self.paused & set(segments):
            self.paused.discard(segment)
            self._buffer.resume(self._fetchers[segment])

    @requires_lock("_buffer.changed")
    def filer_errors(self) -> list[StoreUnavailable]:
        """Why the filer could not be read last, of each fetcher that waits for it."""
        return [it.filer_error for it in self._fetchers.values() if it.filer_error is not None]
