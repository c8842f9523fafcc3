"""A command that needs the filer says that it waits for it, and ends after its timeout although a request hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from smq.admin import Condition
from smq.cli.connection import filer_watch, session
from smq.cli.connection.filer_watch import FilerWatch, filer_named
from smq.cli.connection.session import CommandFailed
from smq_core.errors import BucketMissing, InvalidRequest, StoreDenied, StoreUnavailable, Unavailable
from support.waiting import HANG_GUARD, eventually

AWAY = StoreUnavailable("no clear answer from s3://smq (http://h:1) for 'default/t/_current.json': in 2.0s")
NOTE = "waiting for the filer: no clear answer from s3://smq (http://h:1): in 2.0s"


class FakeClient:
    """Its filer is checked once for each answer, the last of which stays."""

    def __init__(self, *answers: Exception | None, topics: tuple[Any, ...] | None = None) -> None:
        self.answers = list(answers)
        self.checks = 0
        self.checked: list[str] = []
        self._topics = (read_topic("default/t"),) if topics is None else topics

    def check_filer(self, topic: str, timeout: float) -> None:
        self.checks += 1
        self.checked.append(topic)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer

    def admin(self) -> FakeClient:
        return self

    def topics(self) -> list[Any]:
        return list(self._topics)


def read_topic(name: str) -> Any:
    """A topic that the leader has read from the filer."""
    return SimpleNamespace(name=name, segments=("s",), conditions=())


def unread_topic(name: str) -> Any:
    """A topic that the leader cannot read, so that it has no segments."""
    why = "the leader has not read the topic's layout from the filer yet; brokers continue with their segments"
    ready = Condition("Ready", "Unknown", "LayoutUnknown", why)
    return SimpleNamespace(name=name, segments=(), conditions=(ready,))


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is printed. Checks follow one another at once."""
    printed: list[str] = []
    monkeypatch.setattr(filer_watch, "NOTE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(filer_watch, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(session, "print_note", printed.append)
    session.print_wait.cache_clear()
    yield printed
    session.print_wait.cache_clear()
    session.set_leader(None)


def ends_with(client: Any, timeout: float | None = None) -> list[str]:
    """With what a watch of this client ends the command, while a request hangs."""
    ended: list[str] = []
    hangs = threading.Event()

    def end(message: str) -> None:
        ended.append(message)
        hangs.set()

    with FilerWatch(client, "t", end, timeout):
        assert hangs.wait(HANG_GUARD)
    return ended


def test_the_filer_is_named_and_the_command_ended_after_the_timeout(notes: list[str]) -> None:
    session.set_leader(None, timeout=0.1)
    client: Any = FakeClient(AWAY)
    ended = ends_with(client)

    assert notes == [NOTE] and ended[0].startswith("no clear answer from s3://smq (http://h:1): in 2.0s for 0 s.")


def test_a_command_with_a_timeout_of_its_own_ends_after_that(notes: list[str]) -> None:
    session.set_leader(None, timeout=HANG_GUARD)
    client: Any = FakeClient(AWAY)
    ended = ends_with(client, timeout=0.1)

    assert "for 0 s" in ended[0]


def test_what_no_retry_helps_ends_the_command_at_once(notes: list[str]) -> None:
    client: Any = FakeClient(BucketMissing("there is no bucket at s3://wrong: create it, or change the url"))
    ended = ends_with(client)

    assert not notes and ended == ["there is no bucket at s3://wrong: create it, or change the url"]


@pytest.mark.parametrize(
    "answer", [None, Unavailable("no leader"), InvalidRequest("closed"), StoreDenied("no key")], ids=repr
)
def test_while_the_filer_answers_or_another_error_comes_it_goes_on(answer: Exception | None, notes: list[str]) -> None:
    session.set_leader(None, timeout=0.1)
    client = FakeClient(answer)
    watched: Any = client
    ended: list[str] = []

    with FilerWatch(watched, "t", ended.append):
        eventually(lambda: client.checks > 3)

    assert notes == [] and ended == []


def test_an_answer_begins_the_timeout_anew(notes: list[str]) -> None:
    session.set_leader(None, timeout=HANG_GUARD)
    client = FakeClient(AWAY, None)
    watched: Any = client
    ended: list[str] = []

    with FilerWatch(watched, "t", ended.append):
        eventually(lambda: client.checks > 3)

    assert notes == [NOTE] and ended == []


def test_what_has_ended_is_not_ended_again(notes: list[str]) -> None:
    client = FakeClient(AWAY)
    watched: Any = client
    session.set_leader(None, timeout=HANG_GUARD)
    ended: list[str] = []
    with FilerWatch(watched, "t", ended.append):
        eventually(lambda: client.checks > 0)
    assert ended == []


def test_a_leader_that_waits_for_the_filer_is_not_blamed() -> None:
    away: Any = FakeClient(AWAY)
    with (
        pytest.raises(CommandFailed, match=r"the leader waits for the filer: no clear answer from s3://smq"),
        filer_named(away),
    ):
        raise Unavailable("no leader answered")


def test_the_filer_is_checked_with_a_topic_that_the_leader_has_read() -> None:
    client: Any = FakeClient(AWAY, topics=(unread_topic("default/a"), read_topic("default/b")))
    with pytest.raises(CommandFailed, match="the leader waits for the filer"), filer_named(client):
        raise Unavailable("no leader answered")
    assert client.checked == ["default/b"], "nobody can locate the other one"


def test_a_filer_that_hangs_while_the_first_topic_is_created_is_named() -> None:
    client: Any = FakeClient(None, topics=(unread_topic("default/a"),))
    with (
        pytest.raises(CommandFailed, match=r"for the filer: .* layout from the filer yet. `smq topic list`"),
        filer_named(client),
    ):
        raise Unavailable("no leader answered")
    assert not client.checks


@pytest.mark.parametrize("client", [FakeClient(None), FakeClient(AWAY, topics=())])
def test_other_errors_of_the_leader_stay(client: Any) -> None:
    with pytest.raises(Unavailable, match="no leader answered"), filer_named(client):
        raise Unavailable("no leader answered")
