"""The views of topics that a client uses: all that are in use, and a few that were used last. Each has a thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from smq.lock_order import ClientLock
from smq_core.errors import InvalidRequest, PermissionDenied, UnknownTopic
from smq_storage.process.locks import make_lock

# A call for one of these topics need not locate it again. Few programs call for more topics in turn.
MAX_IDLE_VIEWS = 8


class View(Protocol):
    """What is needed of :class:`smq.transport.topic_view.TopicView`."""

    @property
    def deleted(self) -> UnknownTopic | None: ...

    @property
    def has_listeners(self) -> bool: ...

    def wait_for_snapshot(self) -> object: ...

    def close(self) -> None: ...


V = TypeVar("V", bound=View)


class TopicViews(Generic[V]):
    """Safe from many threads. A view is in use while it is leased, and while a producer or consumer listens to it."""

    def __init__(self, open_view: Callable[[str], V]) -> None:
        self._open_view = open_view
        self._lock = make_lock(ClientLock.VIEWS)
        self._views: dict[str, V] = {}
        """The one that was leased last is the last one."""
        self._leases: Counter[str] = Counter()
        self._closed = False

    @contextmanager
    def lease(self, topic: str, check: Callable[[], None] | None = None) -> Iterator[V]:
        """The view of a topic, by its full name, with a snapshot.

        ``check`` raises if the view is not to be used. It is called as soon as the topic is located or the leader
        does not let the client do that. Raises InvalidRequest after ``close``, UnknownTopic, Unavailable.
        """
        with self._lock:
            if self._closed:
                raise InvalidRequest("the client is closed")
            view, former = self._views.pop(topic, None), None
            if view is not None and view.deleted is not None and not self._is_used(topic, view):
                view, former = None, view  # a topic of that name may have been created since
            if view is None:
                view = self._open_view(topic)
            self._views[topic] = view
            self._leases[topic] += 1
        if former is not None:
            former.close()
        is_located = False
        try:
            try:
                view.wait_for_snapshot()
            except PermissionDenied:
                if check is not None:
                    check()  # the leader does not know what for, so this error names the right that is needed
                raise
            if (deleted := view.deleted) is not None:
                raise deleted
            is_located = True
            if check is not None:
                check()
            yield view
        finally:
            with self._lock:
                self._leases[topic] -= 1
                idle = [it for it, idle_view in self._views.items() if not self._is_used(it, idle_view)]
                surplus = idle[: max(0, len(idle) - MAX_IDLE_VIEWS)]
                if not is_located and topic in idle:
                    surplus.append(topic)
                unused = [self._views.pop(it) for it in dict.fromkeys(surplus)]
                self._leases = +self._leases
            for one in unused:
                one.close()

    def _is_used(self, topic: str, view: V) -> bool:
        return self._leases[topic] > 0 or view.has_listeners

    def close(self) -> None:
        """Closes all views. Repeatable."""
        with self._lock:
            self._closed = True
            views = list(self._views.values())
        for view in views:
            view.close()
