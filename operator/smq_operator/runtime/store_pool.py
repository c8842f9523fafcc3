"""Calls that block on the store, in a separate thread pool, so that the event loop never waits for the filer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Concatenate, ParamSpec, TypeVar

from smq_core.errors import StoreUnavailable
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store

P = ParamSpec("P")
T = TypeVar("T")


class StorePool:
    """The store of one leader and the threads that wait for it. ``executor`` None is the event loop's own executor."""

    def __init__(self, store: Store, executor: Executor | None, retry_policy: RetryPolicy | None = None) -> None:
        self._store = store
        self._executor = executor
        self.retry_policy = retry_policy or RetryPolicy()
        """How long the calls repeat their writes."""
        self.failures = 0
        """How many calls the store did not answer."""

    async def run(self, call: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs ``call(store, *args)`` in the pool."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, lambda: call(self._store, *args, **kwargs))
        except StoreUnavailable:
            self.failures += 1
            raise
