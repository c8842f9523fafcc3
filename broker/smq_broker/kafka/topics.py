"""Topics as Kafka's clients name them, and where their partitions are.

A topic of the namespace ``default`` has its own name there, one of another namespace is ``namespace.topic``. Neither
part has a dot, so this is unambiguous.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from smq_broker.leader_client.locator import Locator
from smq_core.errors import InvalidRequest, UnknownTopic
from smq_core.model.entities import Layout, Segment, Topic, number_of
from smq_core.model.names import DEFAULT_NAMESPACE, full_topic_name
from smq_storage.process.locks import make_lock

# How old the list of all topics may be, which takes several requests to the filer for each topic.
LIST_TTL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic and its layout, which is at most some 200 ms old."""

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
    """Its methods block while they read the filer. Safe from many threads."""

    def __init__(self, locator: Locator, list_topics: Callable[[], Iterable[str]]) -> None:
        self._locator = locator
        self._list_topics = list_topics
        self._lock = make_lock()
        self._names: tuple[float, list[str]] = (-LIST_TTL_SECONDS, [])
        self._by_id: dict[uuid.UUID, str] = {}

    def named(self, name: str) -> KafkaTopic | None:
        """The topic that Kafka's clients name so, or None if there is none. Raises StoreUnavailable."""
        full = full_name(name)
        if full is None:
            return None
        try:
            topic, layout = self._locator.find(full)
        except UnknownTopic:
            return None
        found = KafkaTopic(name, topic, layout)
        with self._lock:
            self._by_id[found.id] = name
        return found

    def identified(self, id_: uuid.UUID) -> KafkaTopic | None:
        """The topic with this id. Raises StoreUnavailable."""
        with self._lock:
            name = self._by_id.get(id_)
        if name is None:
            self.all()
            with self._lock:
                name = self._by_id.get(id_)
        found = self.named(name) if name is not None else None
        return found if found is not None and found.id == id_ else None

    def all(self) -> list[KafkaTopic]:
        """All topics, by name. Raises StoreUnavailable."""
        with self._lock:
            at, names = self._names
        if time.monotonic() - at >= LIST_TTL_SECONDS:
            names = sorted(kafka_name(full) for full in self._list_topics())
            with self._lock:
                self._names = time.monotonic(), names
        return [found for name in names if (found := self.named(name)) is not None]


def leader_epoch(segment: Segment) -> int:
    """Kafka's number of a partition's leader. It grows from each segment with the partition to the next one."""
    return number_of(segment.name)


def topic_id(uid: str) -> uuid.UUID:
    """The topic's uid, or one made from it if it is no UUID."""
    try:
        return uuid.UUID(uid)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, uid)


def kafka_name(full: str) -> str:
    """``default/flights`` -> ``flights``, ``team-a/flights`` -> ``team-a.flights``."""
    namespace, _, name = full.partition("/")
    return name if namespace == DEFAULT_NAMESPACE else f"{namespace}.{name}"


def full_name(name: str) -> str | None:
    """The topic that is meant, or None if no topic can have that name."""
    namespace, dot, topic = name.rpartition(".")
    try:
        return full_topic_name(topic, namespace if dot else DEFAULT_NAMESPACE)
    except InvalidRequest:
        return None
