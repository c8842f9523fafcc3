"""Keeps the cache true: lists everything once before anybody leads, watches, and lists again when that may have missed.

A list costs one read; it is repeated after a watch began anew, after the API server was away, and now and then.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

import structlog

from smq_operator.kube.api import KubeApi
from smq_operator.kube.cache import Cache
from smq_operator.kube.errors import Forbidden, KubeError, NotFound, Unauthorized, Unreachable
from smq_operator.kube.feed import Feed, Scope
from smq_operator.kube.kinds import TOPICS, Kind
from smq_storage import glibc

log = structlog.get_logger()

AGAIN_EVERY = 300.0
AT_FIRST = (2.0, 10.0, 30.0)
"""Until a watch has begun it says nothing, and of a kind of which there is nothing it never says that it has begun."""
SOON = 1.0
"""So that one list answers for many watches that begin anew together."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0


class Sync:
    """See the module's docstring. Use it on the leader's loop."""

    def __init__(self, api: KubeApi, cache: Cache, clock: Callable[[], int], scopes: Sequence[Scope]) -> None:
        self._api = api
        self._now = clock
        self._cache = cache
        self._scopes = list(scopes)
        self._feeds: list[Feed] = []
        self._due: set[Kind] = set()
        self._asked = asyncio.Event()

    async def first(self, say: Callable[[str], None]) -> None:
        """Returns when every kind is known as a whole; ``say`` is told what keeps it from that, for as long."""
        pause = FIRST_PAUSE
        told = ""
        while True:
            try:
                await self._list({kind for scope in self._scopes for kind in scope.kinds} - self._cache.synced)
                break
            except KubeError as error:
                why = _advice(error)
                say(why)
                if why != told:
                    told = why
                    log.error("kube.unreadable", error=type(error).__name__, message=why, again_in=pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        await asyncio.to_thread(glibc.give_back)  # what starting took, before leading takes its own
        for scope in self._scopes:
            self._feeds.append(Feed(scope, self._cache, self._api.configuration, self._watched))
            self._feeds[-1].start()

    async def keep(self) -> None:
        """Lists again when it should; runs until it is cancelled."""
        pauses = itertools.chain(AT_FIRST, itertools.repeat(AGAIN_EVERY))
        while True:
            try:
                async with asyncio.timeout(next(pauses)):
                    await self._asked.wait()
                await asyncio.sleep(SOON)
            except TimeoutError:
                self.again()
            self._asked.clear()
            due, self._due = self._due, set()
            try:
                await self._list(due)
                # Answers are large, and so is what a start leaves behind.
                await asyncio.to_thread(glibc.give_back)
            except KubeError as error:
                log.warning("kube.list.failed", error=type(error).__name__, message=error.message)
                self._due |= due
                await asyncio.sleep(LONGEST_PAUSE)
                self._asked.set()

    def again(self) -> None:
        """Everything is listed again, soon."""
        self._due |= {kind for scope in self._scopes for kind in scope.kinds}
        self._asked.set()

    def stop(self) -> None:
        for feed in self._feeds:
            feed.stop()

    def _watched(self, kind: Kind) -> None:
        self._due.add(kind)
        self._asked.set()

    async def _list(self, kinds: set[Kind]) -> None:
        for scope in list(self._scopes):
            for kind in scope.kinds:
                if kind in kinds:
                    try:
                        await self._list_one(scope, kind)
                    except Forbidden as error:
                        if not scope.optional or kind in self._cache.synced:
                            raise
                        log.info("kube.done.without", kind=kind.plural, message=error.message)
                        self._scopes.remove(scope)

    async def _list_one(self, scope: Scope, kind: Kind) -> None:
        namespace, asked_at = scope.namespace if kind.namespaced else "", self._now()
        items, version = await self._api.list(kind, namespace, scope.labels.get(kind, ""))
        self._cache.replace(kind, items, version, namespace, asked_at)


def _advice(error: KubeError) -> str:
    if isinstance(error, NotFound):
        return (
            f"the cluster does not know {TOPICS.plural}.{TOPICS.group} or segments.{TOPICS.group} ({error.message}): "
            "install the definitions, with `helm upgrade --set crds.install=true` or `kubectl apply -f crds/`"
        )
    if isinstance(error, Unauthorized):
        return f"the API server does not accept the operator's credentials: {error.message}"
    if isinstance(error, Unreachable):
        return f"waiting for the API server: {error.message}"
    return error.message
