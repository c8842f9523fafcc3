"""Changes and deletions of topics, for modules that follow them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.listeners import Listeners

TopicListener: TypeAlias = Callable[[ManagedTopic], None]


class TopicEvents:
    """Listeners subscribe when they are constructed, and are called in that order, on the event loop."""

    def __init__(self) -> None:
        self._on_change: Listeners[TopicListener] = Listeners()
        self._on_deleted: Listeners[TopicListener] = Listeners()

    def on_change(self, listener: TopicListener) -> None:
        """Calls ``listener`` whenever the layout, the index, or the adoption of a topic changed."""
        self._on_change.add(listener)

    def on_deleted(self, listener: TopicListener) -> None:
        """Calls ``listener`` when a topic is no longer desired and no adoption of it is under way."""
        self._on_deleted.add(listener)

    def changed(self, managed: ManagedTopic) -> None:
        managed.notify_changed()
        self._on_change.notify(id(managed), lambda listener: listener(managed))

    def deleted(self, managed: ManagedTopic) -> None:
        self._on_deleted.notify(id(managed), lambda listener: listener(managed))
