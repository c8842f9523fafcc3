"""Queries for seal outcomes go on after a failure, over new connections where one was broken, and hold up nobody."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from smq.producing import seal_outcomes
from smq.producing.runtime.outcome_worker import OutcomeWorker
from smq.producing.seal_outcomes import SealOutcomeClient
from smq_core.errors import Unreachable
from smq_core.model.entities import Replica, Topic, TopicSpec
from smq_storage.process.locks import requires_no_lock
from support.waiting import HANG_GUARD, eventually

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

    def dial(replica: Replica) -> Any:
        number = len(dialed)
        dialed.append(number)
        return SimpleNamespace(close=lambda: closed.append(number))

    def fail(*_: object, **__: object) -> bytes:
        raise Unreachable("connection reset")

    monkeypatch.setattr(seal_outcomes.AdaptiveTimeout, "may_send", lambda *_: True)
    dialer: Any = SimpleNamespace(flight=dial, call=fail)
    client = SealOutcomeClient(dialer)
    for _ in range(2):
        assert client.fetch(TOPIC, "t-0-16-0", "p", [Replica("b1", "i1", "b1:1")]) is None
    assert dialed == closed == [0, 1]


class Connections:
    def __init__(self) -> None:
        self.closed = False

    @requires_no_lock
    def close(self) -> None:
        """It may wait for a broker, and a producer that adds a query would wait for it with its own lock."""
        self.closed = True


def test_connections_are_closed_without_the_lock_when_no_outcome_is_missing() -> None:
    opened: list[Any] = []

    def make() -> Any:
        opened.append(Connections())
        return opened[-1]

    worker = OutcomeWorker(make)
    worker.add(lambda _: False)
    eventually(lambda: opened and opened[0].closed)
    worker.add(lambda _: True)
    eventually(lambda: len(opened) == 2)
    worker.close()
    assert opened[1].closed
