"""A command that waits says for what, and why it does not come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from smq.cli import session, waiting
from smq.cli.session import CommandFailed
from smq.cli.waiting import MessageWait, cause_of_wait, wait_until
from smq_core.errors import StoreUnavailable
from support.waiting import eventually

FILER_AWAY = StoreUnavailable("no clear answer from s3://smq (http://h:1) for 'default/t/_current.json': in 2.0s")


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is printed. Each wait takes long enough to be named."""
    printed: list[str] = []
    monkeypatch.setattr(waiting, "NOTE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(session, "print_note", printed.append)
    session.print_wait.cache_clear()
    yield printed
    session.print_wait.cache_clear()


class FakeClient:
    def __init__(self, failure: StoreUnavailable | None = None, blocked: str = "") -> None:
        self.failure = failure
        self.blocked = blocked

    def check_filer(self, topic: str, timeout: float = 2.0) -> None:
        if self.failure is not None:
            raise self.failure

    def admin(self) -> FakeClient:
        return self

    def topic(self, topic: str) -> Any:
        class Condition:
            type, is_true, message = "SealBlocked", True, self.blocked

        class Topic:
            conditions = (Condition(),) if self.blocked else ()

        return Topic()


class FakeConsumer:
    """Has a batch at the n-th poll."""

    def __init__(self, batch_at: int) -> None:
        self.batch_at = batch_at
        self.polls = 0

    def poll(self, timeout: float) -> object | None:
        self.polls += 1
        return "batch" if self.polls >= self.batch_at else None


def test_a_wait_is_named_once(notes: list[str]) -> None:
    answers = iter([None, None, "done"])
    assert wait_until(lambda: next(answers), "the segments", 60.0, str) == "done"
    assert notes == ["waiting for the segments"]


def test_a_wait_that_takes_too_long_says_what_became_of_it() -> None:
    with pytest.raises(CommandFailed, match="not done"):
        wait_until(lambda: None, "the segments", 0.0, lambda: "not done")


def test_a_consumer_says_that_it_waits_for_messages(notes: list[str]) -> None:
    client: Any = FakeClient()
    consumer: Any = FakeConsumer(3)
    assert MessageWait(client, "events").poll(consumer, None) == "batch"
    assert notes == ["waiting for messages of events…"]


def test_a_poll_ends_after_its_timeout() -> None:
    client: Any = FakeClient()
    consumer: Any = FakeConsumer(10**9)
    assert MessageWait(client, "events").poll(consumer, 0.0) is None


def test_a_consumer_says_that_it_is_the_filer(notes: list[str]) -> None:
    client: Any = FakeClient(FILER_AWAY)
    consumer: Any = FakeConsumer(2)
    MessageWait(client, "events").poll(consumer, None)
    eventually(lambda: len(notes) == 2)
    assert notes[1].startswith("waiting for the filer: no clear answer from s3://smq (http://h:1).")


def test_a_blocked_seal_is_the_cause() -> None:
    client: Any = FakeClient(blocked="no replica answers")
    assert cause_of_wait(client, "default/t") == "t: no replica answers"
    client = FakeClient()
    assert cause_of_wait(client, "default/t") == ""
