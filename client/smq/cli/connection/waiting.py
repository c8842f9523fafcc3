"""Waits of commands. After a second each says what it waits for, and why that does not come if it can be found out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from smq.cli.connection.filer_watch import CHECK_SECONDS, description, filer_failure, filer_problem
from smq.cli.connection.session import CommandFailed, print_wait
from smq.cli.output import formatting
from smq_core.errors import SmqError, StoreDenied

if TYPE_CHECKING:
    from smq import Batch, Client, Consumer, TopicsConsumer

T = TypeVar("T")

WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]
WaitTimeout = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="The longest to wait until it is done.")
]
DONE_TIMEOUT_SECONDS = 30.0

NOTE_AFTER_SECONDS = 1.0
POLL_SECONDS = 0.1
# How much longer than a timeout a reader waits that is not at the end.
UNREAD_SECONDS = 10.0
# The time without a message after which the cause is looked for again.
CHECK_AGAIN_SECONDS = 10.0
# How long the filer has for its answer when the timeout has passed.
LAST_CHECK_SECONDS = 0.5


class FilerAway(CommandFailed):
    """There may be more messages, but the filer does not answer. Threads may wait in requests that do not end."""


def wait_until(found: Callable[[], T | None], what: str, timeout: float, on_timeout: Callable[[], str]) -> T:
    """Calls ``found`` until it returns something, and returns that.

    After NOTE_AFTER_SECONDS it prints ``waiting for <what>``. Raises CommandFailed with the text of ``on_timeout``.
    """
    began = time.monotonic()
    while (result := found()) is None:
        waited = time.monotonic() - began
        if waited >= timeout:
            raise CommandFailed(on_timeout())
        if waited >= NOTE_AFTER_SECONDS:
            print_wait(f"waiting for {what}")
        time.sleep(POLL_SECONDS)
    return result


@contextmanager
def _without_filer_warnings() -> Iterator[None]:
    """Warnings about the filer are not logged meanwhile, because the wait's cause says the same."""
    logger = logging.getLogger("smq.transport.filer_health")
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


class MessageWait:
    """Polls a consumer. When no message comes for a second, it says so, and why if something is wrong.

    The reading ends at the end of the topic: ``timeout`` seconds after the last message (None: never), or at once with
    ``exit_at_end``. ``on_idle`` is called before the end is looked for.
    """

    def __init__(
        self,
        *,
        client: Client,
        topics: Sequence[str],
        timeout: float | None = None,
        exit_at_end: bool = False,
        on_idle: Callable[[Consumer | TopicsConsumer], object] = lambda _: None,
    ) -> None:
        self._on_idle = on_idle
        self._client = client
        self._topics = topics
        self._names = ", ".join(topics)
        self._timeout = timeout
        self._exit_at_end = exit_at_end
        self._checked_at = 0.0
        self._check: threading.Thread | None = None
        self._filer_problem = ""
        """Why the filer did not answer the last check."""

    def poll(self, consumer: Consumer | TopicsConsumer) -> Batch | None:
        """The next batch, or None when the reading ends.

        Raises CommandFailed if there may be more messages than could be read in time.
        """
        began, self._filer_problem = time.monotonic(), ""
        step = POLL_SECONDS if self._exit_at_end else NOTE_AFTER_SECONDS
        pause = step if self._timeout is None else min(self._timeout, step)
        while True:
            with _without_filer_warnings():
                batch = consumer.poll(pause)
            waited = time.monotonic() - began
            overdue = self._timeout is not None and waited >= self._timeout
            if batch is None and (self._exit_at_end or overdue):
                self._on_idle(consumer)
            if batch is not None or (self._exit_at_end and consumer.at_end()):
                return batch
            if overdue:
                if consumer.at_end():
                    return None
                self._check_more(consumer, waited)
                pause = POLL_SECONDS
            elif self._timeout is not None:
                pause = min(self._timeout - waited, step)
            if waited >= NOTE_AFTER_SECONDS:
                print_wait(f"waiting for messages of {self._names}…")
            if waited >= NOTE_AFTER_SECONDS or overdue:
                self._look_for_the_cause(None if self._timeout is None else self._timeout - waited)

    def _check_more(self, consumer: Consumer | TopicsConsumer, waited: float) -> None:
        """Raises CommandFailed if reading fails, or does not get on for long. A slow start is not the end."""
        assert self._timeout is not None
        failure = consumer.filer_error
        problem = description(failure) if failure is not None else self._filer_problem
        if problem:
            raise FilerAway(f"{self._unread(waited)}: {problem}")
        if waited >= self._timeout + UNREAD_SECONDS:
            cause = _first_cause(self._client, self._topics)
            raise CommandFailed(
                f"{self._unread(waited)}: {cause or 'the brokers have not said yet where the topic ends'}"
            )

    def _unread(self, waited: float) -> str:
        return f"no message of {self._names} came for {waited:.0f} s, but there may be more"

    def _look_for_the_cause(self, left: float | None) -> None:
        """In a separate thread, because a filer that hangs takes seconds to be given up.

        ``left`` is the time until the timeout. ``consumer.filer_error`` comes too late for that, because a request of
        the reader waits longer for a filer that hangs.
        """
        now = time.monotonic()
        overdue = left is not None and left <= 0
        pause = LAST_CHECK_SECONDS if overdue or (left and self._filer_problem) else CHECK_AGAIN_SECONDS
        if self._checked_at and now - self._checked_at < pause:
            return
        if self._check is not None and self._check.is_alive():
            return
        self._checked_at = now
        seconds = CHECK_SECONDS if left is None else min(CHECK_SECONDS, max(LAST_CHECK_SECONDS, left))
        self._check = threading.Thread(
            target=self._check_cause, args=(seconds, not overdue), name="smq-wait-cause", daemon=True
        )
        self._check.start()

    def _check_cause(self, seconds: float, prints: bool) -> None:
        failure = filer_failure(self._client, self._topics[0], seconds)  # the filer of all topics
        # A filer that refuses the credentials has answered. If a read needs them, the consumer says so itself.
        away = failure is not None and not isinstance(failure, StoreDenied)
        self._filer_problem = description(failure) if failure is not None and away else ""
        problem = "" if failure is None else description(failure)
        for topic in self._topics if prints else ():
            if cause := _cause(self._client, topic, problem):
                print_wait(cause)


def cause_of_wait(client: Client, topic: str) -> str:
    """Why messages of a topic may not come: the filer, or a segment that cannot be sealed; empty if all is well."""
    return _cause(client, topic, filer_problem(client, topic))


def _first_cause(client: Client, topics: Sequence[str]) -> str:
    return next((cause for topic in topics if (cause := cause_of_wait(client, topic))), "")


def _cause(client: Client, topic: str, problem: str) -> str:
    if problem:
        return f"waiting for the filer: {problem}. Until it answers, only the newest messages can be read"
    try:
        conditions = client.admin().topic(topic).conditions
    except SmqError as error:
        return error.message
    blocked = [c.message for c in conditions if c.type == "SealBlocked" and c.is_true]
    return f"{formatting.topic(topic)}: {blocked[0]}" if blocked else ""
