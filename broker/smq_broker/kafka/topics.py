"""Topics as Kafka's clients name them, and where their partitions are.

A name that several topics claim is that of the topic that the filer names for it, and of the others none.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from smq_broker.leader_client.locator import Locator
from smq_core.errors import UnknownTopic
from smq_core.kafka_topics.names import is_kafka_name, own_name, resource_name, topic_of_own_name
from smq_core.model.entities import Layout, Segment, Topic, number_of
from smq_core.model.names import DEFAULT_NAMESPACE, is_label
from smq_storage.process.locks import make_lock

# How old the list of all topics may be, which takes several requests to the filer for each topic.
LIST_TTL_SECONDS = 5.0
# How soon all topics are looked through again for an id that none of them had.
ID_SEARCH_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic and its layout, which may be some milliseconds old."""

    name: str
    topic: Topic
    layout: Layout

    @property
    def id(self) -> uuid.UUID:
        return topic_id(self.topic.uid)

    @property
    def partitions(self) -> int:
        return self.topic.spec.partitions

    def segment(self, partition: int) -> Segment | None:
        """The segment that takes messages of this partition, now or soon. None if there is no such partition."""
        return next((it for it in self.layout.writable_segments if partition in it.range), None)


class KafkaTopics:
    """Its methods block while they read the filer, but for ``known``. Safe from many threads.

    ``find_name`` returns the topic whose ``spec.kafka.name`` a name is, or was.
    """

    def __init__(
        self, locator: Locator, list_topics: Callable[[], Iterable[str]], find_name: Callable[[str], str | None]
    ) -> None:
        self._locator = locator
        self._list_topics = list_topics
        self._find_name = find_name
        self._lock = make_lock()
        self._listed: tuple[float, list[str]] = (-LIST_TTL_SECONDS, [])
        self._full_names: dict[str, str] = {}
        """Of names that are not those of resources, as they were found last."""
        self._by_id: dict[uuid.UUID, str] = {}
        self._searched_at = -ID_SEARCH_SECONDS

    def known(self, name: str) -> str | None:
        """The full name of the topic, or None if ``named`` has to find it. The topic may be gone by now."""
        return f"{DEFAULT_NAMESPACE}/{name}" if is_label(name) else self._full_names.get(name)

    def named(self, name: str, *, fresh: bool = False) -> KafkaTopic | None:
        """The topic that Kafka's clients name so, or None if there is none; with ``fresh`` as it is now.

        Raises StoreUnavailable.
        """
        for full in self._candidates(name):
            found = self.with_full_name(full, fresh=fresh)
            if found is not None and found.name == name:
                with self._lock:
                    self._by_id[found.id] = name
                    self._full_names[name] = full
                return found
        return None

    def full_name(self, name: str) -> str | None:
        """The topic that has this name, or would have it. None if no topic can have it. Raises StoreUnavailable."""
        if is_label(name) or not is_kafka_name(name):
            return self.known(name)
        found = self.named(name)
        if found is not None:
            return found.topic.name
        return topic_of_own_name(name) or f"{DEFAULT_NAMESPACE}/{resource_name(name)}"

    def _candidates(self, name: str) -> Iterator[str]:
        if not is_kafka_name(name):
            return
        known = self.known(name)
        if known is not None:
            yield known
        if is_label(name):
            return
        claimed = self._find_name(name)
        if claimed is not None:
            yield claimed
        own = topic_of_own_name(name)
        if own is not None:
            yield own

    def with_full_name(self, full: str, *, fresh: bool = False) -> KafkaTopic | None:
        """The topic, even if another one has its name for Kafka's clients. Raises StoreUnavailable."""
        try:
            topic, layout = self._locator.find(full, fresh=fresh)
        except UnknownTopic:
            return None
        return KafkaTopic(kafka_name(topic), topic, layout)

    def known_id(self, id_: uuid.UUID) -> str | None:
        """The name of the topic with this id, as it was found last. Another topic may have that name by now."""
        return self._by_id.get(id_)

    def identified(self, id_: uuid.UUID) -> KafkaTopic | None:
        """The topic with this id. Raises StoreUnavailable.

        An id that nobody has may be one of thousands in a request, so they share a search through all topics.
        """
        with self._lock:
            name = self._by_id.get(id_)
            is_due = time.monotonic() - self._searched_at >= ID_SEARCH_SECONDS
        if name is None and is_due:
            self.all()
            with self._lock:
                self._searched_at = time.monotonic()
                name = self._by_id.get(id_)
        found = self.named(name) if name is not None else None
        return found if found is not None and found.id == id_ else None

    def unlisted(self, names: Iterable[str]) -> set[str]:
        """Of many names those that no topic has, by the list of all topics instead of a read for each.

        Names that are not those of resources may be missing. Raises StoreUnavailable.
        """
        listed = set(self._all_names())
        return {name for name in names if is_label(name) and f"{DEFAULT_NAMESPACE}/{name}" not in listed}

    def _all_names(self) -> list[str]:
        with self._lock:
            at, listed = self._listed
        if time.monotonic() - at >= LIST_TTL_SECONDS:
            listed = list(self._list_topics())
            with self._lock:
                self._listed = time.monotonic(), listed
        return listed

    def all(self) -> list[KafkaTopic]:
        """All topics, by name. Raises StoreUnavailable."""
        listed = self._all_names()
        topics = [found for full in listed if (found := self.with_full_name(full)) is not None]
        named = [found for it in topics if (found := self.named(it.name)) and found.topic.name == it.topic.name]
        return sorted(named, key=lambda it: it.name)

    def forget_list(self) -> None:
        """A topic was created or deleted, so that the next list shows it."""
        with self._lock:
            self._listed = (-LIST_TTL_SECONDS, [])


def leader_epoch(segment: Segment) -> int:
    """Kafka's number of a partition's leader. It grows from each segment with the partition to the next one."""
    return number_of(segment.name)


@lru_cache(10_000)
def topic_id(uid: str) -> uuid.UUID:
    """The topic's uid, or one made from it if it is no UUID."""
    try:
        return uuid.UUID(uid)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, uid)


def kafka_name(topic: Topic) -> str:
    """What Kafka's clients call the topic."""
    return topic.spec.kafka_name or own_name(topic.name)
