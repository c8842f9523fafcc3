"""_kafka_names/<name>.json: the topic that Kafka's clients call so, if it is not the topic's own name.

The topic's spec has the name, too, and the file without the topic says nothing. So it is never removed: the next topic
of that name takes it over by compare-and-swap.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from smq_core.errors import Conflict
from smq_core.kafka_topics.names import topic_of_own_name
from smq_core.model.entities import Topic
from smq_storage.catalog import paths
from smq_storage.catalog.topics import read_current_topic, read_topic
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_document, read_unless_missing, write_document
from smq_storage.object_store.store import Store

_TRIES = 10


@dataclass(frozen=True, slots=True)
class KafkaName:
    """``topic`` is ``namespace/topic``. ``writer`` is unique for each write."""

    name: str
    topic: str
    uid: str
    writer: str = ""


def topic_of_kafka_name(store: Store, name: str) -> str | None:
    """The topic that had this name last, which may be gone by now. Raises StoreUnavailable."""
    found = read_document(store, paths.kafka_name(name), KafkaName)
    return found[0].topic if found is not None else None


def claim_kafka_name(store: Store, topic: Topic, retry_policy: RetryPolicy) -> str | None:
    """Gives the topic the name in its spec. Returns the other topic that has it, None if this one has it now.

    Raises StoreUnavailable.
    """
    name = topic.spec.kafka_name
    assert name is not None
    own = topic_of_own_name(name)
    if own is not None and read_current_topic(store, own) is not None:
        return own
    path = paths.kafka_name(name)
    for _ in range(_TRIES):
        found = read_unless_missing(store, path, KafkaName)
        known, etag = found if found is not None else (None, None)
        if known is not None and (known.topic, known.uid) == (topic.name, topic.uid):
            return None
        if known is not None and known.topic != topic.name and _is_living(store, known):
            return known.topic
        if _write(store, KafkaName(name, topic.name, topic.uid, uuid.uuid4().hex), etag, retry_policy):
            return None
    raise Conflict(f"the topic that Kafka's clients call {name} changes again and again: is another leader running?")


def _write(store: Store, mine: KafkaName, etag: str | None, retry_policy: RetryPolicy) -> bool:
    """Whether it is there now."""
    path = paths.kafka_name(mine.name)
    written = write_document(
        store, path, mine, etag, is_mine=lambda it: it.writer == mine.writer, retry_policy=retry_policy
    )
    return written is not None


def _is_living(store: Store, known: KafkaName) -> bool:
    current = read_current_topic(store, known.topic)
    if current is None:
        return False
    topic = read_topic(store, known.topic, current.uid)
    return topic is not None and topic.spec.kafka_name == known.name
