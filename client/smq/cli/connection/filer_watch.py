"""Commands that read or write files by themselves: they say that they wait for the filer, and end if it stays away."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from smq.cli.connection.session import CommandFailed, leader_timeout, print_error, print_wait
from smq_core.errors import SmqError, StoreDenied, StoreUnavailable, Unavailable
from smq_storage.process.locks import make_lock

if TYPE_CHECKING:
    from smq import Client

NOTE_AFTER_SECONDS = 1.0
# How long a check waits for the filer at most, and the time until the next one.
CHECK_SECONDS = 2.0


# The reason of a topic's condition while the leader cannot read the topic from the filer.
LAYOUT_UNKNOWN = "LayoutUnknown"


def filer_problem(client: Client, topic: str, seconds: float = CHECK_SECONDS) -> str:
    """Why the filer does not answer; empty if it does, or if nobody can tell."""
    failure = filer_failure(client, topic, seconds)
    return "" if failure is None else description(failure)


def filer_failure(client: Client, topic: str, seconds: float) -> StoreUnavailable | None:
    """The error of a filer that does not answer; None if it does, or if nobody can tell."""
    try:
        client.check_filer(topic, seconds)
    except StoreUnavailable as error:
        return error
    except SmqError:
        return None
    return None


def description(failure: StoreUnavailable) -> str:
    """The error for people, without the file's name."""
    where, named, rest = failure.message.partition(" for '")
    cause = rest.partition("': ")[2]
    return f"{where}: {cause}" if named else where


class FilerWatch:
    """Around what needs the filer. The program itself waits inside a request, which lasts longer than a user waits.

    A thread checks the filer after NOTE_AFTER_SECONDS. It prints that the filer is waited for, and calls ``end`` when
    the filer has not answered for ``timeout`` seconds (None: for ``--timeout``).
    """

    def __init__(
        self, client: Client, topic: str, end: Callable[[str], None] | None = None, timeout: float | None = None
    ) -> None:
        self._client = client
        self._topic = topic
        self._timeout = leader_timeout() if timeout is None else timeout
        self._end = end or end_process
        self._done = threading.Event()
        self._lock = make_lock()

    def __enter__(self) -> FilerWatch:
        threading.Thread(target=self._run, name="smq-filer-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._done.set()

    def _run(self) -> None:
        answered_at = time.monotonic()
        pause = NOTE_AFTER_SECONDS
        while not self._done.wait(pause):
            left = self._timeout - (time.monotonic() - answered_at)
            failure = filer_failure(self._client, self._topic, min(CHECK_SECONDS, max(0.1, left)))
            now = time.monotonic()
            # A filer that refuses the credentials has answered, and what the leader signs needs none.
            if failure is None or isinstance(failure, StoreDenied):
                answered_at, pause = now, CHECK_SECONDS
                continue
            problem = description(failure)
            with self._lock:
                if self._done.is_set():
                    return
                if not failure.retry:
                    self._end(problem)
                    return
                print_wait(f"waiting for the filer: {problem}")
                if now - answered_at >= self._timeout:
                    self._end(f"{problem} for {self._timeout:.0f} s. Repeat the command when the filer answers")
                    return
            pause = max(0.0, min(CHECK_SECONDS, self._timeout - (now - answered_at) - CHECK_SECONDS))


def end_process(message: str) -> NoReturn:
    """Ends the process with an error, although other threads wait in requests that cannot be interrupted."""
    print_error(message)
    exit_now(1)


def exit_now(code: int) -> NoReturn:
    """Ends the process, whatever its other threads do."""
    sys.stdout.flush()
    os._exit(code)


@contextmanager
def filer_named(client: Client, see: str = "smq topic list") -> Iterator[None]:
    """If the leader does not answer in time because it waits for the filer itself, the error says so.

    ``see`` is the command that shows what was done.
    """
    try:
        yield
    except Unavailable as error:
        problem = filer_problem_of_leader(client)
        if not problem:
            raise
        raise CommandFailed(
            f"the leader waits for the filer: {problem}. `{see}` shows what was done when the filer answers"
        ) from error


def filer_problem_of_leader(client: Client) -> str:
    """Why the filer answers neither this client nor the leader; empty if it does, or if nobody can tell.

    A client learns the filer's address with a topic that the leader has read. While there is none, what the leader says
    about the others is all that is known.
    """
    try:
        topics = client.admin().topics()
    except SmqError:
        return ""
    readable = [topic for topic in topics if topic.segments]
    if readable:
        return filer_problem(client, readable[0].name)
    waiting = (c.message for t in topics for c in t.conditions if c.reason == LAYOUT_UNKNOWN)
    return next((message.partition("; ")[0] for message in waiting), "")
