"""The topics that this leader manages, by full name."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Collection, Mapping

from smq_core.errors import Unavailable, UnknownTopic
from smq_core.model.entities import Layout
from smq_core.model.names import full_topic_name
from smq_operator.reconcile.topics.managed_topic import ManagedTopic


class TopicDirectory(UserDict[str, ManagedTopic]):
    """A mapping from full name to managed topic. ``TopicSync`` alone adds and removes topics."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = False
        """Whether the desired topics were read from the platform since this leader began."""

    def topic(self, name: str) -> ManagedTopic:
        """The topic of a full or bare name. Raises InvalidRequest, UnknownTopic, before the first sync Unavailable."""
        full = full_topic_name(name)
        managed = self.get(full)
        if managed is None and not self.synced:
            raise Unavailable("the new leader is still loading its topics: try again in a few seconds")
        if managed is None:
            raise UnknownTopic.among(full, self)
        return managed

    def layouts(self) -> Mapping[str, Layout]:
        """The known layouts, by topic."""
        return {name: managed.layout for name, managed in self.items() if managed.layout is not None}

    def pending_layouts(self) -> list[Layout]:
        """The known layouts, where a layout that is being written replaces the one before it."""
        both = (managed.pending_layout or managed.layout for managed in self.values())
        return [layout for layout in both if layout is not None]

    @property
    def all_layouts_known(self) -> bool:
        """True when every topic's layout was read. A topic that has no layout yet assigns no segment to any broker."""
        return self.synced and all(managed.layout_known for managed in self.values())

    def layouts_known_for(self, hosted: Collection[str]) -> bool:
        """Whether the layouts are known that may assign messages to a broker that hosts segments of these topics.

        A topic with an unreadable document holds up only the brokers that host its segments.
        """
        return self.synced and all(
            managed.layout_known or (managed.unreadable is not None and managed.name not in hosted)
            for managed in self.values()
        )
