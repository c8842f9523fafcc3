"""How many calls to one broker go on at a time, and who waits for whom."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from smq_core.model import Replica
from smq_operator import calls
from smq_proto.v1 import data_pb2 as pb

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
            over.wait(60)
        return b"done"

    monkeypatch.setattr(calls, "_call", call)
    yield begun
    over.set()


@pytest.mark.parametrize("haste", [{}, {"urgent": True}])
def test_nobody_waits_for_what_is_unhurried(stuck: list[str], haste: dict[str, bool]) -> None:
    async def run() -> bytes:
        brokers = calls.Brokers(threads=32)
        slow = [
            asyncio.create_task(brokers.call(BROKER, "slow", REQUEST, timeout=60, unhurried=True)) for _ in range(20)
        ]
        try:
            while len(stuck) < calls.UNHURRIED_PER_BROKER:
                await asyncio.sleep(0)
            return await brokers.call(BROKER, "open", REQUEST, timeout=20, **haste)
        finally:
            for task in slow:
                task.cancel()
            brokers.close()

    assert asyncio.run(run()) == b"done"
    assert stuck.count("slow") == calls.UNHURRIED_PER_BROKER
