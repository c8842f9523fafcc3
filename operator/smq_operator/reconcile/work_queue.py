"""Which topics the loop reconciles next, and how others make it run at once."""

from __future__ import annotations

import asyncio

from smq_operator.reconcile.topics.managed_topic import ManagedTopic


class WorkQueue:
    """Use it on the event loop."""

    def __init__(self) -> None:
        self._wakeup = asyncio.Event()
        self._all_due = True

    def enqueue(self, managed: ManagedTopic | None = None) -> None:
        """Lets the loop run at once: for this topic, or for all of them if none is given."""
        if managed is None:
            self._all_due = True
        else:
            managed.due = True
        self._wakeup.set()

    def mark_all_due(self) -> None:
        """As ``enqueue``, but for a loop that is already running."""
        self._all_due = True

    def take_all_due(self) -> bool:
        """Whether all topics are due; they are not any more after this call."""
        due, self._all_due = self._all_due, False
        return due

    async def wait(self, timeout_seconds: float) -> None:
        """Returns when something was enqueued, or after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._wakeup.wait()
        except TimeoutError:
            pass
        self._wakeup.clear()
