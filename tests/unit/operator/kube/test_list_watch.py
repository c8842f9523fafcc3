"""When everything is listed again: after a list that failed, and after a watch that began during one. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from greenlet import getcurrent, greenlet
from kubernetes.client import Configuration

from smq_operator.kube.client.errors import ApiServerUnreachable
from smq_operator.kube.client.kinds import TOPICS, Kind
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.informer.list_watch import (
    DEBOUNCE_SECONDS,
    INITIAL_RESYNC_SECONDS,
    MAX_BACKOFF_SECONDS,
    Informer,
)
from smq_operator.kube.informer.watcher import ResourceWatcher, WatchScope
from support import virtual_time
from support.sim.engine.virtual_threads import VirtualThread
from support.waiting import wait_until

FIRST_LIST_SECONDS, NEXT_RESYNC_SECONDS = INITIAL_RESYNC_SECONDS[:2]


class Lists:
    """The lists that an informer of Topics makes. ``during_first`` is called while the first one is made."""

    def __init__(self, during_first: Callable[[Informer], None]) -> None:
        self.made_at: list[float] = []
        self.parsed_in: list[greenlet] = []
        self._during_first = during_first
        self._began = virtual_time.now()
        api: Any = SimpleNamespace(list=self._list)
        self.informer = Informer(
            api=api,
            cache=ResourceCache(),
            parse_topics=self._parse,
            clock=virtual_time.now,
            scopes=[WatchScope([TOPICS])],
        )

    def _parse(self, _: object) -> None:
        self.parsed_in.append(getcurrent())

    async def _list(self, kind: Kind, namespace: str, labels: str) -> tuple[list[Any], int]:
        self.made_at.append((virtual_time.now() - self._began) / 1e6)
        if len(self.made_at) == 1:
            self._during_first(self.informer)
        return [], 1

    async def second(self) -> float:
        """When the second list was made."""
        running = asyncio.ensure_future(self.informer.run())
        await wait_until(lambda: len(self.made_at) == 2)
        running.cancel()
        assert self.made_at[0] >= FIRST_LIST_SECONDS
        return self.made_at[1] - self.made_at[0]


def fail(informer: Informer) -> None:
    raise ApiServerUnreachable("broken by the test")


@virtual_time.virtual_time
async def test_a_list_that_failed_is_made_again_soon() -> None:
    assert await Lists(fail).second() < MAX_BACKOFF_SECONDS + DEBOUNCE_SECONDS + 1


@virtual_time.virtual_time
async def test_a_watch_that_begins_during_a_list_gets_another_one() -> None:
    """What changed between the two is in neither."""
    assert await Lists(lambda it: it._on_watch_started(TOPICS)).second() < DEBOUNCE_SECONDS + 1 < NEXT_RESYNC_SECONDS


@virtual_time.virtual_time
async def test_a_list_of_topics_is_not_parsed_on_the_loop() -> None:
    lists = Lists(lambda _: None)
    await lists.second()
    assert lists.parsed_in and all(isinstance(it, VirtualThread) for it in lists.parsed_in)


def test_a_change_that_could_not_be_taken_in_is_listed() -> None:
    listed: list[Kind] = []

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    cache: Any = SimpleNamespace(put=fail)
    watcher = ResourceWatcher(
        scope=WatchScope([TOPICS]),
        cache=cache,
        parse_topics=lambda _: None,
        configuration=Configuration(),
        on_listed=listed.append,
    )
    metadata = {"name": "t", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    with pytest.raises(ZeroDivisionError):
        watcher._on_event(TOPICS, "ADDED", {"metadata": metadata})
    assert listed == [TOPICS]
