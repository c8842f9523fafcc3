"""Reads several topics with one ``poll``: a list of them, or all whose names match a pattern."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import TracebackType
from typing import Any

from smq.batch import Batch
from smq.closing import close_all
from smq.consumer import Consumer
from smq.forks import track
from smq.lock_order import ClientLock
from smq_core.errors import InvalidRequest, PermissionDenied, SmqError, StoreUnavailable, UnknownTopic
from smq_storage.process.locks import make_rlock

log = logging.getLogger(__name__)

# The time between two searches for topics that match a pattern.
REFRESH_SECONDS = 10.0


# How many topics a repr names at most.
MAX_NAMED = 5


class TopicPattern:
    """The topics whose names match, as far as there are any. ``list_topics`` returns full names."""

    def __init__(self, pattern: re.Pattern[str], namespace: str, list_topics: Callable[[], Collection[str]]) -> None:
        self._pattern = pattern
        self._namespace = namespace
        self._list_topics = list_topics

    def topics(self) -> list[str]:
        """The full names of those that exist now, sorted. Raises Unavailable."""
        return sorted(name for name in self._list_topics() if self._matches(name))

    def _matches(self, name: str) -> bool:
        namespace, _, short = name.partition("/")
        own = namespace == self._namespace and self._pattern.fullmatch(short) is not None
        return own or self._pattern.fullmatch(name) is not None


class TopicsConsumer:
    """Made by :meth:`smq.Client.consumer` with several topics. For one thread at a time: iterate it or call ``poll``.

    Each topic is read as by a separate :class:`smq.Consumer`, which ``consumer[topic]`` returns, for example to seek.
    The topics take turns. :attr:`smq.Batch.topic` says which one a batch is from. With a pattern, a topic that is made
    later is read within ten seconds, and one that is deleted leaves.
    """

    def __init__(
        self, topics: Collection[str] | TopicPattern, open_consumer: Callable[[str, threading.Condition], Consumer]
    ) -> None:
        self._pattern = topics if isinstance(topics, TopicPattern) else None
        self._open_consumer = open_consumer
        self._changed = threading.Condition(make_rlock(ClientLock.CONSUMER))
        """That of all consumers, so that one wait sees what comes for any of them."""
        self._consumers: dict[str, Consumer] = {}
        """By full name, the one whose turn it is first."""
        self._last: Consumer | None = None
        self._closed = False
        self._refresh_at = 0.0
        try:
            if isinstance(topics, TopicPattern):
                self._add_topics(topics.topics())
            else:
                self._add_topics(topics)
        except BaseException:
            self.close()
            raise
        self._refresh_at = time.monotonic() + REFRESH_SECONDS
        track(self)

    def __repr__(self) -> str:
        names = sorted(self._consumers)
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        topics = ", ".join(names[:MAX_NAMED]) + more or "no topic"
        return f"<TopicsConsumer of {topics}{', closed' if self._closed else ''}>"

    def poll(self, timeout: float | None = None, max_messages: int | None = None) -> Batch | None:
        """Returns the next batch of any topic, or None if none came within ``timeout`` seconds (None: no limit).

        Raises what :meth:`smq.Consumer.poll` raises. A topic of a list that was deleted raises UnknownTopic.
        """
        if self._last is not None:
            self._last._finish_last_batch()
            self._last = None
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._refresh()
            batch = self._poll_each(max_messages)
            if batch is not None:
                return batch
            with self._changed:
                if self._closed:
                    raise InvalidRequest("the consumer is closed")
                if any(consumer._is_ready() for consumer in self._consumers.values()):
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(self._limit(left))

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches until the consumer is closed."""
        while not self._closed:
            batch = self.poll()
            if batch is not None:
                yield batch

    def __getitem__(self, topic: str) -> Consumer:
        """The consumer of one topic, by its full name (``namespace/topic``). Raises KeyError."""
        if topic not in self._consumers:
            raise KeyError(f"{topic} is not read. These topics are: {', '.join(sorted(self._consumers)) or 'none'}")
        return self._consumers[topic]

    @property
    def topics(self) -> frozenset[str]:
        """The full names of the topics that are read."""
        return frozenset(self._consumers)

    def commit(self) -> dict[str, dict[str, int]]:
        """Commits everything returned so far. Returns what was committed, ``{topic: {segment: next offset}}``.

        Raises InvalidRequest without a group, Unavailable if no leader answers; some topics may be committed then.
        """
        done = {topic: consumer.commit() for topic, consumer in self._consumers.items()}
        return {topic: positions for topic, positions in done.items() if positions}

    @property
    def positions(self) -> dict[str, dict[str, int]]:
        """How far messages were returned, ``{topic: {segment: next offset}}``."""
        return {topic: consumer.positions for topic, consumer in self._consumers.items()}

    @property
    def filer_error(self) -> StoreUnavailable | None:
        """As :attr:`smq.Consumer.filer_error`, of the first topic that waits for the filer."""
        failures = (consumer.filer_error for consumer in list(self._consumers.values()))
        return next((error for error in failures if error is not None), None)

    def at_end(self) -> bool:
        """Whether everything that the replicas last reported as durable has been returned. There may be more since."""
        # Each is asked first, because a call also starts the search for the next one.
        ends = [consumer.at_end() for consumer in self._consumers.values()]
        return all(ends)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def close(self) -> None:
        """Ends all reading and leaves the group; see :meth:`smq.Consumer.close`. Repeatable."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        close_all(list(self._consumers.values()))

    def __enter__(self) -> TopicsConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- inside

    def _poll_each(self, max_messages: int | None) -> Batch | None:
        """The next batch of the first topic that has one. It is that topic's turn last, thereafter."""
        for topic, consumer in list(self._consumers.items()):
            try:
                batch = consumer.poll(0, max_messages)
            except UnknownTopic:
                if self._pattern is None:
                    raise
                log.info("%s was deleted and is no longer read", topic)
                consumer.close()
                del self._consumers[topic]
                continue
            if batch is not None:
                self._consumers[topic] = self._consumers.pop(topic)
                self._last = consumer
                return batch
        return None

    def _limit(self, left: float | None) -> float | None:
        """For how long at most to wait for a change."""
        limits = [left, *(consumer._wait_limit(left) for consumer in self._consumers.values())]
        if self._pattern is not None:
            limits.append(self._refresh_at - time.monotonic())
        return min((max(0.0, it) for it in limits if it is not None), default=None)

    def _refresh(self) -> None:
        """Adds topics that match the pattern by now."""
        if self._pattern is None or self._closed or time.monotonic() < self._refresh_at:
            return
        self._refresh_at = time.monotonic() + REFRESH_SECONDS
        try:
            self._add_topics(self._pattern.topics())
        except SmqError as error:
            log.info("it is not known whether there are more topics to read: %s", error.message)

    def _add_topics(self, topics: Collection[str]) -> None:
        for topic in topics:
            if topic in self._consumers:
                continue
            try:
                self._consumers[topic] = self._open_consumer(topic, self._changed)
            except UnknownTopic:
                if self._pattern is None:
                    raise
                log.info("%s was deleted before it was read", topic)
            except PermissionDenied as error:
                if self._pattern is None:
                    raise
                log.info("%s is not read: %s", topic, error.message)


def check_topics(topics: Collection[str]) -> Collection[str]:
    """The same names. Raises InvalidRequest if there are none, or one comes twice."""
    if not topics:
        raise InvalidRequest("pass at least one topic to read")
    twice = sorted({topic for topic in topics if list(topics).count(topic) > 1})
    if twice:
        raise InvalidRequest(f"these topics are named twice: {', '.join(twice)}")
    return topics


def start_of(start: object, topic: str) -> Any:
    """Where one of several topics starts: positions are ``{topic: {segment: next offset}}``, others are for all."""
    return start.get(topic, "earliest") if isinstance(start, Mapping) else start
