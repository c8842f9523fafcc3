"""A command that waits says for what, and why it does not come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from smq.cli.connection import session, waiting
from smq.cli.connection.session import CommandFailed
from smq.cli.connection.waiting import FilerAway, MessageWait, cause_of_wait, wait_until
from smq_core.errors import StoreDenied, StoreUnavailable
from support.waiting import HANG_GUARD, eventually

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
        self.checks = 0

    def check_filer(self, topic: str, timeout: float = 2.0) -> None:
        self.checks += 1
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
    """Has a batch at the n-th poll, and is at the end of its topic after that number of polls."""

    def __init__(self, batch_at: int = 10**9, end_at: int = 0, filer_error: StoreUnavailable | None = None) -> None:
        self.batch_at = batch_at
        self.end_at = end_at
        self.filer_error = filer_error
        self.polls = 0

    def at_end(self) -> bool:
        return self.polls >= self.end_at

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
    assert MessageWait(client=client, topics=["events"]).poll(consumer) == "batch"
    assert notes == ["waiting for messages of events…"]


def test_a_poll_ends_after_its_timeout() -> None:
    client: Any = FakeClient()
    consumer: Any = FakeConsumer()
    assert MessageWait(client=client, topics=["events"], timeout=0.0).poll(consumer) is None


def test_a_slow_start_is_not_the_end_of_the_topic() -> None:
    client: Any = FakeClient()
    consumer: Any = FakeConsumer(end_at=5)
    assert MessageWait(client=client, topics=["events"], timeout=0.0).poll(consumer) is None
    assert consumer.polls == 5


def test_a_reading_that_fails_is_an_error_and_not_the_end() -> None:
    client: Any = FakeClient()
    consumer: Any = FakeConsumer(end_at=10**9, filer_error=FILER_AWAY)
    with pytest.raises(CommandFailed, match=r"there may be more: no clear answer from s3://smq"):
        MessageWait(client=client, topics=["events"], timeout=0.0).poll(consumer)


def test_a_reading_ends_soon_after_its_timeout_if_its_request_to_the_filer_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "UNREAD_SECONDS", HANG_GUARD)
    client: Any = FakeClient(FILER_AWAY)
    consumer: Any = FakeConsumer(end_at=10**9)  # the request has not failed yet, so the consumer knows no error
    with pytest.raises(FilerAway, match=r"there may be more: no clear answer from s3://smq \(http://h:1\)"):
        MessageWait(client=client, topics=["events"], timeout=0.0).poll(consumer)


def test_a_filer_that_refuses_a_check_does_not_end_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LAST_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "UNREAD_SECONDS", HANG_GUARD)
    client: Any = FakeClient(StoreDenied("no key"))
    consumer: Any = FakeConsumer()
    # The checks run in separate threads, which a busy machine may start late.
    monkeypatch.setattr(consumer, "at_end", lambda: client.checks > 1)
    assert MessageWait(client=client, topics=["events"], timeout=0.0).poll(consumer) is None


def test_an_earlier_failure_of_the_filer_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = FakeClient(FILER_AWAY)
    wait = MessageWait(client=client, topics=["events"], timeout=0.0)
    with pytest.raises(FilerAway):
        wait.poll(FakeConsumer(end_at=10**9))  # type: ignore[arg-type]
    client.failure = None
    assert wait.poll(FakeConsumer(end_at=5)) is None  # type: ignore[arg-type]


def test_a_reader_that_does_not_reach_the_end_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "UNREAD_SECONDS", 0.0)
    client: Any = FakeClient(blocked="no replica answers")
    consumer: Any = FakeConsumer(end_at=10**9)
    with pytest.raises(CommandFailed, match="there may be more: events: no replica answers"):
        MessageWait(client=client, topics=["events"], timeout=0.0).poll(consumer)


def test_a_reader_may_exit_at_the_end_without_a_timeout() -> None:
    client: Any = FakeClient()
    consumer: Any = FakeConsumer(end_at=3)
    assert MessageWait(client=client, topics=["events"], exit_at_end=True).poll(consumer) is None
    assert consumer.polls == 3


def test_a_consumer_says_that_it_is_the_filer(notes: list[str]) -> None:
    client: Any = FakeClient(FILER_AWAY)
    consumer: Any = FakeConsumer(2)
    MessageWait(client=client, topics=["events"]).poll(consumer)
    eventually(lambda: len(notes) == 2)
    assert notes[1].startswith("waiting for the filer: no clear answer from s3://smq (http://h:1): in 2.0s.")


def test_a_blocked_seal_is_the_cause() -> None:
    client: Any = FakeClient(blocked="no replica answers")
    assert cause_of_wait(client, "default/t") == "t: no replica answers"
    client = FakeClient()
    assert cause_of_wait(client, "default/t") == ""
