"""Watches the API with kopf and feeds the cache: event handlers only, no annotations, no finalizers, no peering.

Each watcher runs in a thread with its own event loop, because kopf cancels all other tasks of its loop when it stops.
There is one watcher per scope, because the permissions for Topics and for brokers differ.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import kopf
import structlog
from kubernetes.client import Configuration

from smq_operator.kube.client.api import PAGE_SIZE
from smq_operator.kube.client.kinds import TOPICS, Kind, Resource
from smq_operator.kube.informer.cache import ResourceCache

log = structlog.get_logger(__name__)

# Bookmarks come every minute, so a watch without any message for longer is dead.
WATCH_INACTIVITY_SECONDS = 70.0
CONNECT_TIMEOUT_SECONDS = 5.0
REQUEST_TIMEOUT_SECONDS = 30.0
RETRY_DELAYS_SECONDS = (0.5, 1.0, 1.0, 2.0)
RESTART_DELAY_SECONDS = 1.0
# kopf keeps a task for each resource that changed within this time; at the start these are all resources.
WORKER_IDLE_SECONDS = 0.05

# Parses Topics that the cache will get, in the thread that received them.
ParseTopics: TypeAlias = Callable[[Iterable[Resource]], None]


@dataclass(frozen=True, slots=True)
class WatchScope:
    """Some kinds in one namespace, or (empty) in all, with their label selectors.

    An ``optional`` scope is skipped if the operator lacks the permission.
    """

    kinds: Sequence[Kind]
    namespace: str = ""
    labels: Mapping[Kind, str] = field(default_factory=dict)
    optional: bool = False


class ResourceWatcher:
    """Watches a scope from ``start`` to ``stop``. Calls ``on_listed`` on the leader's loop when a watch starts anew.

    Deletions between two watches may have been missed, so the caller should list then. The same holds for an event that
    could not be handled.
    """

    def __init__(
        self,
        *,
        scope: WatchScope,
        cache: ResourceCache,
        parse_topics: ParseTopics,
        configuration: Configuration,
        on_listed: Callable[[Kind], None],
    ) -> None:
        self._scope = scope
        self._cache = cache
        self._parse_topics = parse_topics
        self._configuration = configuration
        self._on_listed = on_listed
        self._stop = threading.Event()
        self._watching: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{scope.kinds[0].plural}", daemon=True)

    def start(self) -> None:
        """Call it on the leader's loop."""
        _configure_kopf_logging()
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Stops it soon, and drops later events. The thread ends with the process."""
        self._stop.set()
        watching = self._watching
        if watching is not None:
            loop, stop_event = watching
            with suppress(RuntimeError):  # its loop is closed already
                loop.call_soon_threadsafe(stop_event.set)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                asyncio.run(self._watch())
            except BaseException as error:  # this thread ends only with the process, whatever kopf raises
                log.warning(
                    "informer.watch_failed", kinds=[kind.plural for kind in self._scope.kinds], message=str(error)
                )
            self._stop.wait(RESTART_DELAY_SECONDS)

    async def _watch(self) -> None:
        """Watches until ``stop``, or until kopf gives up after several errors of the API server in a row."""
        namespace = self._scope.namespace
        # kopf would wait for a threading.Event in a thread, and then forever for that thread when it gives up.
        stop_event = asyncio.Event()
        self._watching = asyncio.get_running_loop(), stop_event
        if self._stop.is_set():
            return
        await kopf.operator(
            registry=self._registry(),
            settings=self._settings(),
            standalone=True,
            clusterwide=not namespace,
            namespaces=[namespace] if namespace else [],
            stop_flag=stop_event,
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(id="login", registry=registry)(self._login)
        for kind in self._scope.kinds:
            handler = self._handler(kind)
            group, _, version = kind.api_version.rpartition("/")
            kopf.on.event(group, version, kind.plural, id="feed", registry=registry)(handler)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True  # needs no permission to watch CRDs; the kinds do not change
        settings.process.ultimate_exiting_timeout = None
        settings.queueing.idle_timeout = WORKER_IDLE_SECONDS
        settings.watching.chunk_size = PAGE_SIZE
        settings.watching.inactivity_timeout = WATCH_INACTIVITY_SECONDS
        settings.watching.connect_timeout = settings.networking.connect_timeout = CONNECT_TIMEOUT_SECONDS
        settings.networking.request_timeout = REQUEST_TIMEOUT_SECONDS
        settings.networking.error_backoffs = RETRY_DELAYS_SECONDS
        for kind, selector in self._scope.labels.items():
            settings.watching.label_selectors[kind.plural] = selector
        return settings

    def _login(self, **_: Any) -> kopf.ConnectionInfo:
        """kopf calls it at the start, and again when the API server rejects the credentials."""
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
        async def handle(event: Mapping[str, Any], **_: Any) -> None:
            resource: Resource = {"apiVersion": kind.api_version, "kind": kind.kind, **event["object"]}
            if kind is TOPICS and event["type"] != "DELETED":
                self._parse_topics([resource])
            self._call(self._on_event, kind, event["type"], resource)

        return handle

    def _on_event(self, kind: Kind, event_type: str | None, resource: Resource) -> None:
        """Runs on the leader's loop, whose exception handler gets every error."""
        if self._stop.is_set():
            return
        try:
            self._update_cache(kind, event_type, resource)
        except Exception:
            self._on_listed(kind)  # the change would be missed until the next list
            raise

    def _update_cache(self, kind: Kind, event_type: str | None, resource: Resource) -> None:
        if event_type == "DELETED":
            self._cache.drop(kind, resource)
            return
        self._cache.put(kind, resource)
        if event_type is None:
            self._on_listed(kind)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


class _StructlogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log.warning("informer.watch_warned", message=record.getMessage())


def _configure_kopf_logging() -> None:
    """Limits kopf's log to warnings, in the format of this program."""
    logger = logging.getLogger("kopf")
    if not any(isinstance(handler, _StructlogHandler) for handler in logger.handlers):
        logger.handlers, logger.propagate = [_StructlogHandler()], False
        logger.setLevel(logging.WARNING)
