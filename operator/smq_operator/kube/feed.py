"""kopf watches the API and feeds the cache: event handlers only, no annotations, no finalizers, no peering.

It runs in a thread with a loop of its own, because at its end kopf cancels whatever else runs on its loop. Rights are
different where Topics are and where brokers are, so there is one feed for each of the two.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import kopf
import structlog
from kubernetes.client import Configuration

from smq_operator.kube.api import PAGE
from smq_operator.kube.cache import Cache
from smq_operator.kube.kinds import Kind, Resource

log = structlog.get_logger()

SILENT_FOR = 70.0
"""Bookmarks come every minute, so a watch that says nothing for longer leads nowhere."""
CONNECT_WITHIN = 5.0
ANSWER_WITHIN = 30.0
RETRIES = (0.5, 1.0, 1.0, 2.0)
AGAIN_AFTER = 1.0
WORKER_STAYS = 0.05
"""kopf has a task for each resource that it heard of within so long: at a start, for all of them."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Some kinds, in one namespace or (empty) in all, with their label selectors.

    An ``optional`` one is done without where there is no right to it.
    """

    kinds: Sequence[Kind]
    namespace: str = ""
    labels: Mapping[Kind, str] = field(default_factory=dict)
    optional: bool = False


class Feed:
    """Watches a scope from ``start`` to ``stop``. ``listed`` is called on the leader's loop when a watch begins anew.

    Between two watches deletions may have been missed, so somebody should list then.
    """

    def __init__(
        self, scope: Scope, cache: Cache, configuration: Configuration, listed: Callable[[Kind], None]
    ) -> None:
        self._scope = scope
        self._cache = cache
        self._configuration = configuration
        self._listed = listed
        self._stop = threading.Event()
        self._watching: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{scope.kinds[0].plural}", daemon=True)

    def start(self) -> None:
        """Call it on the leader's loop."""
        _quiet()
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Ends it soon; news that comes later is dropped. The thread ends with the process."""
        self._stop.set()
        watching = self._watching
        if watching is not None:
            loop, ends = watching
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(ends.set)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                asyncio.run(self._watch())
            except Exception as error:
                log.warning("kube.watch.failed", kinds=[kind.plural for kind in self._scope.kinds], message=str(error))
            self._stop.wait(AGAIN_AFTER)

    async def _watch(self) -> None:
        """Until ``stop``, or until kopf gives up: of the API server's own errors it stands only so many in a row."""
        namespace = self._scope.namespace
        # A flag of threads would be waited for in a thread, and that one waited for when kopf gives up: for ever.
        ends = asyncio.Event()
        self._watching = asyncio.get_running_loop(), ends
        if self._stop.is_set():
            return
        await kopf.operator(
            registry=self._registry(),
            settings=self._settings(),
            standalone=True,
            clusterwide=not namespace,
            namespaces=[namespace] if namespace else [],
            stop_flag=ends,
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(id="login", registry=registry)(self._login)
        for kind in self._scope.kinds:
            handler = self._handler(kind)
            group, _, version = kind.api.rpartition("/")
            kopf.on.event(group, version, kind.plural, id="feed", registry=registry)(handler)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True  # no right to watch the definitions is needed; the kinds stay the same
        settings.process.ultimate_exiting_timeout = None
        settings.queueing.idle_timeout = WORKER_STAYS
        settings.watching.chunk_size = PAGE
        settings.watching.inactivity_timeout = SILENT_FOR
        settings.watching.connect_timeout = settings.networking.connect_timeout = CONNECT_WITHIN
        settings.networking.request_timeout = ANSWER_WITHIN
        settings.networking.error_backoffs = RETRIES
        for kind, selector in self._scope.labels.items():
            settings.watching.label_selectors[kind.plural] = selector
        return settings

    def _login(self, **_: Any) -> kopf.ConnectionInfo:
        """Asked at the start, and again when the API server does not accept the last answer."""
        known = self._configuration
        scheme, _space, token = (known.get_api_key_with_prefix("BearerToken") or "").rpartition(" ")
        return kopf.ConnectionInfo(
            server=known.host,
            ca_path=known.ssl_ca_cert,
            insecure=not known.verify_ssl,
            scheme=scheme.capitalize() or None,
            token=token.strip() or None,
            certificate_path=known.cert_file,
            private_key_path=known.key_file,
        )

    def _handler(self, kind: Kind) -> Callable[..., Any]:
        async def feed(event: Mapping[str, Any], **_: Any) -> None:
            resource: Resource = dict(event["object"])
            self._call(self._take, kind, event["type"], resource)

        return feed

    def _take(self, kind: Kind, what: str | None, resource: Resource) -> None:
        """On the leader's loop."""
        if self._stop.is_set():
            return
        resource.setdefault("apiVersion", kind.api)
        resource.setdefault("kind", kind.kind)
        if what == "DELETED":
            self._cache.drop(kind, resource)
            return
        self._cache.put(kind, resource)
        if what is None:
            self._listed(kind)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


class _ToLog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log.warning("kube.watch", message=record.getMessage())


def _quiet() -> None:
    """kopf says little, and in this program's form."""
    logger = logging.getLogger("kopf")
    if not any(isinstance(handler, _ToLog) for handler in logger.handlers):
        logger.handlers, logger.propagate = [_ToLog()], False
        logger.setLevel(logging.WARNING)
