"""Who waits for the turn to connect to a broker, and who gives up."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from smq.transport import flight_channel
from smq.transport.flight_channel import _ConnectQueue
from support.waiting import HANG_GUARD


def test_nobody_waits_for_a_broker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_channel, "CONNECT_TIMEOUT_SECONDS", 0.01)
    queue = _ConnectQueue()
    assert queue.enter()
    assert not queue.enter(), "the first one is still connecting"
    queue.leave(False)


def test_who_waits_behind_others_that_connect_keeps_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = _ConnectQueue()
    assert queue.enter()
    queue.leave(True)
    assert queue.enter()
    monkeypatch.setattr(flight_channel, "time", SimpleNamespace(monotonic=lambda: queue._connected_at))
    monkeypatch.setattr(flight_channel, "CONNECT_TIMEOUT_SECONDS", 0.001)
    entered = threading.Event()

    def wait() -> None:
        assert queue.enter()
        entered.set()

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert not entered.wait(0.05), "it has had several timeouts meanwhile"
    queue.leave(True)
    assert entered.wait(HANG_GUARD)
    waiting.join(HANG_GUARD)
