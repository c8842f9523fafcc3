"""Keeps answers of another server for a moment, so that not every call of a client costs a request there."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from smq_core.errors import Unavailable

K = TypeVar("K")
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """At most ``size`` answers, the oldest of which go first. ``clock`` returns seconds. Use it on the event loop."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._size = size
        self._clock = clock
        self._known: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._requests: dict[K, asyncio.Task[V]] = {}
        """In progress; who needs the same shares one."""

    def __len__(self) -> int:
        return len(self._known)

    async def get(self, key: K, request: Callable[[], Awaitable[V]], counts_until: Callable[[V, float], float]) -> V:
        """What is known, or what ``request`` returns. What it raises is not kept.

        ``counts_until`` says until when an answer counts that came at this time, by the same clock.
        """
        known = self._known.get(key)
        if known is not None and self._clock() < counts_until(known[1], known[0]):
            return known[1]
        task = self._requests.get(key)
        if task is None:
            task = self._requests[key] = asyncio.ensure_future(self._request(key, request))
            task.add_done_callback(lambda _: self._requests.pop(key, None))
        return await asyncio.shield(task)

    async def _request(self, key: K, request: Callable[[], Awaitable[V]]) -> V:
        try:
            answer = await request()
        except Unavailable:
            raise  # nobody has taken back what is known
        except Exception:
            self._known.pop(key, None)
            raise
        self._known.pop(key, None)
        self._known[key] = (self._clock(), answer)
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return answer
