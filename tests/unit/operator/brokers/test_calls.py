"""How many calls to one broker run at a time, and which calls wait for which."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from smq_core.errors import Unavailable
from smq_core.model.entities import Replica
from smq_operator.brokers import calls
from smq_proto.v1 import data_pb2 as pb
from support.waiting import HANG_GUARD

BROKER = Replica("b1", "b1-1", "127.0.0.1:1")
REQUEST = pb.SealSegment()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The actions that have begun; those named ``slow`` do not end before the test does."""
    begun: list[str] = []
    over = threading.Event()

    def call(client: object, action: str, request: object, timeout: float) -> bytes:
        begun.append(action)
        if action == "slow":
            over.wait(HANG_GUARD)
        return b"done"

    monkeypatch.setattr(calls, "_call", call)
    yield begun
    over.set()


@pytest.mark.parametrize("haste", [{}, {"urgent": True}])
async def test_low_priority_calls_block_no_others(stuck: list[str], haste: dict[str, bool]) -> None:
    brokers = calls.BrokerClients(threads=32)
    slow = [asyncio.create_task(brokers.call(BROKER, "slow", REQUEST, timeout=120, background=True)) for _ in range(20)]
    try:
        while len(stuck) < calls.MAX_BACKGROUND_CALLS_PER_BROKER:
            await asyncio.sleep(0)
        assert await brokers.call(BROKER, "open", REQUEST, timeout=120, **haste) == b"done"
    finally:
        for task in slow:
            task.cancel()
        brokers.close()
    assert stuck.count("slow") == calls.MAX_BACKGROUND_CALLS_PER_BROKER


async def test_a_call_that_fails_late_leaves_the_newer_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, late = threading.Event(), threading.Event()

    def call(client: object, action: str, request: object, timeout: float) -> bytes:
        if action == "late":
            begun.set()
            late.wait(HANG_GUARD)
        if action != "open":
            raise calls._ConnectionFailed("broken by the test")
        return b"done"

    monkeypatch.setattr(calls, "_call", call)
    brokers = calls.BrokerClients(threads=4)
    failing = asyncio.create_task(brokers.call(BROKER, "late", REQUEST, timeout=HANG_GUARD))
    try:
        await asyncio.to_thread(begun.wait, HANG_GUARD)
        with pytest.raises(Unavailable):
            await brokers.call(BROKER, "early", REQUEST, timeout=HANG_GUARD)
        await brokers.call(BROKER, "open", REQUEST, timeout=HANG_GUARD)
        newer = brokers._connections[BROKER.incarnation]
        late.set()
        with pytest.raises(Unavailable):
            await failing
        assert brokers._connections == {BROKER.incarnation: newer}
    finally:
        late.set()
        brokers.close()
