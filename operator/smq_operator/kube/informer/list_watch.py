"""Keeps the cache up to date: lists everything once before this process leads, then watches and lists again.

A watch may miss changes. So everything is listed again after a watch restarts, after the API server was unreachable,
and from time to time.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

import structlog

from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.errors import ApiServerUnreachable, Forbidden, KubeError, NotFound, Unauthorized
from smq_operator.kube.client.kinds import TOPICS, Kind
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.informer.watcher import ParseTopics, ResourceWatcher, WatchScope
from smq_storage.process import allocator

log = structlog.get_logger(__name__)

RESYNC_SECONDS = 300.0
# A watch reports nothing until it has started, and never reports its start for a kind without resources.
INITIAL_RESYNC_SECONDS = (2.0, 10.0, 30.0)
# So that one list serves many watches that restart together.
DEBOUNCE_SECONDS = 1.0
INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 5.0


class Informer:
    """See the module's docstring. Use it on the leader's loop."""

    def __init__(
        self,
        *,
        api: KubeApi,
        cache: ResourceCache,
        parse_topics: ParseTopics,
        clock: Callable[[], int],
        scopes: Sequence[WatchScope],
    ) -> None:
        self._api = api
        self._parse_topics = parse_topics
        self._now = clock
        self._cache = cache
        self._scopes = list(scopes)
        self._watchers: list[ResourceWatcher] = []
        self._pending_kinds: set[Kind] = set()
        self._wakeup = asyncio.Event()

    async def start(self, on_blocked: Callable[[str], None]) -> None:
        """Returns when every kind is listed, and is watched. Until then ``on_blocked`` is called with the reason."""
        delay = INITIAL_BACKOFF_SECONDS
        last_reported = ""
        while True:
            try:
                await self._list({kind for scope in self._scopes for kind in scope.kinds} - self._cache.synced)
                break
            except KubeError as error:
                reason = _advice(error)
                on_blocked(reason)
                if reason != last_reported:
                    last_reported = reason
                    log.error(
                        "informer.initial_list_failed",
                        error=type(error).__name__,
                        message=reason,
                        retry_in_seconds=delay,
                    )
            await asyncio.sleep(delay)
            delay = min(delay * 2, MAX_BACKOFF_SECONDS)
        await asyncio.to_thread(allocator.release_memory)  # of the initial lists, before leading needs memory
        for scope in self._scopes:
            self._watchers.append(
                ResourceWatcher(
                    scope=scope,
                    cache=self._cache,
                    parse_topics=self._parse_topics,
                    configuration=self._api.configuration,
                    on_listed=self._on_watch_started,
                )
            )
            self._watchers[-1].start()

    async def run(self) -> None:
        """Lists again when needed, until it is cancelled."""
        delays = itertools.chain(INITIAL_RESYNC_SECONDS, itertools.repeat(RESYNC_SECONDS))
        while True:
            try:
                async with asyncio.timeout(next(delays)):
                    await self._wakeup.wait()
                await asyncio.sleep(DEBOUNCE_SECONDS)
            except TimeoutError:
                self.resync()
            self._wakeup.clear()
            due, self._pending_kinds = self._pending_kinds, set()
            try:
                await self._list(due)
                # Lists are large and leave much memory behind.
                await asyncio.to_thread(allocator.release_memory)
            except KubeError as error:
                log.warning("informer.list_failed", error=type(error).__name__, message=error.message)
                self._pending_kinds |= due
                await asyncio.sleep(MAX_BACKOFF_SECONDS)
                self._wakeup.set()

    def resync(self) -> None:
        """Requests a new list of everything."""
        self._pending_kinds |= {kind for scope in self._scopes for kind in scope.kinds}
        self._wakeup.set()

    def stop(self) -> None:
        for watcher in self._watchers:
            watcher.stop()

    def _on_watch_started(self, kind: Kind) -> None:
        self._pending_kinds.add(kind)
        self._wakeup.set()

    async def _list(self, kinds: set[Kind]) -> None:
        for scope in list(self._scopes):
            for kind in scope.kinds:
                if kind in kinds:
                    try:
                        await self._list_one(scope, kind)
                    except Forbidden as error:
                        if not scope.optional or kind in self._cache.synced:
                            raise
                        log.info("informer.kind_skipped", kind=kind.plural, message=error.message)
                        self._scopes.remove(scope)

    async def _list_one(self, scope: WatchScope, kind: Kind) -> None:
        namespace, requested_at = scope.namespace if kind.namespaced else "", self._now()
        items, version = await self._api.list(kind, namespace, scope.labels.get(kind, ""))
        if kind is TOPICS:
            await asyncio.to_thread(self._parse_topics, items)
        self._cache.replace(kind, items, version, namespace, requested_at)


def _advice(error: KubeError) -> str:
    if isinstance(error, NotFound):
        return (
            f"the cluster does not have {TOPICS.plural}.{TOPICS.group} or segments.{TOPICS.group} ({error.message}): "
            "install the definitions, with `helm upgrade --set crds.install=true` or `kubectl apply -f crds/`"
        )
    if isinstance(error, Unauthorized):
        return f"the API server does not accept the operator's credentials: {error.message}"
    if isinstance(error, ApiServerUnreachable):
        return f"waiting for the API server: {error.message}"
    return error.message
