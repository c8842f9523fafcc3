"""The asyncio consumer over one that the test plays."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from smq.aio import AsyncConsumer
from smq_core.errors import InvalidRequest
from support.waiting import HANG_GUARD


class PolledConsumer:
    """Its poll ends when it is closed, as that of a consumer without messages."""

    def __init__(self) -> None:
        self.polling, self._closed = threading.Event(), threading.Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> None:
        self.polling.set()
        assert self._closed.wait(HANG_GUARD)
        raise InvalidRequest("the consumer is closed")

    def close(self) -> None:
        self._closed.set()


async def test_a_loop_that_was_cancelled_leaves_no_error_that_nobody_gets() -> None:
    """asyncio printed its traceback when the program ended."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    inner: Any = PolledConsumer()

    async def read() -> None:
        async for _ in consumer:
            pass

    consumer = AsyncConsumer(inner)
    reading = asyncio.create_task(read())
    assert await asyncio.to_thread(inner.polling.wait, HANG_GUARD)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    polling = consumer._polling
    assert polling is not None
    await consumer.close()
    await asyncio.wait([polling])
    del polling, reading
    consumer._polling = None
    gc.collect()
    assert unhandled == []
