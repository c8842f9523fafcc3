"""Queries for seal outcomes go on after a failure, and over a new connection where one was broken."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from smq.producing import seal_outcomes
from smq.producing.runtime.outcome_worker import OutcomeWorker
from smq.producing.seal_outcomes import SealOutcomeClient
from smq_core.errors import Unreachable
from smq_core.model.entities import Topic, TopicSpec
from support.waiting import HANG_GUARD

TOPIC = Topic("default/t", "uid", TopicSpec())


def test_a_query_that_fails_is_made_again() -> None:
    made, over = [], threading.Event()

    def query(client: SealOutcomeClient) -> bool:
        made.append(client)
        if len(made) == 1:
            raise ZeroDivisionError("a mistake")
        over.set()
        return False

    dialer: Any = None
    worker = OutcomeWorker(lambda: SealOutcomeClient(dialer))
    worker.add(query)
    assert over.wait(HANG_GUARD)
    worker.close()


def test_a_broken_connection_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    dialed: list[int] = []

    def dial(address: str) -> Any:
        number = len(dialed)
        dialed.append(number)
        return SimpleNamespace(close=lambda: closed.append(number))

    def fail(*_: object, **__: object) -> bytes:
        raise Unreachable("connection reset")

    monkeypatch.setattr(seal_outcomes, "call", fail)
    monkeypatch.setattr(seal_outcomes.AdaptiveTimeout, "may_send", lambda *_: True)
    dialer: Any = SimpleNamespace(flight=dial)
    client = SealOutcomeClient(dialer)
    for _ in range(2):
        assert client.fetch(TOPIC, "t-0-16-0", "p", ["b1:1"]) is None
    assert dialed == closed == [0, 1]
