"""What is stored of each topic's partitions."""

from __future__ import annotations

from smq_core.model.entities import Topic
from smq_storage.object_store.store import Store
from smq_storage.partitions.history import PartitionHistory
from smq_storage.partitions.reader import PartitionReader
from smq_storage.process.locks import make_lock

# The topics whose old messages were read last. Each keeps the ends of its sealed segments, and decoded messages.
MAX_TOPICS = 4
DECODED_BYTES = 64 * 1024 * 1024


class StoredPartitions:
    """What is stored of one topic's partitions: where they begin and end, and their messages."""

    def __init__(self, store: Store, topic: Topic) -> None:
        self.history = PartitionHistory(store=store, topic=topic, decoded_bytes=DECODED_BYTES)
        self.reader = PartitionReader(self.history)


class Histories:
    """Safe from many threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = make_lock()
        self._by_uid: dict[str, StoredPartitions] = {}

    def of(self, topic: Topic) -> StoredPartitions:
        """Reads nothing. Raises InvalidRequest if the topic has no Kafka offsets."""
        with self._lock:
            found = self._by_uid.pop(topic.uid, None) or StoredPartitions(self._store, topic)
            self._by_uid[topic.uid] = found
            while len(self._by_uid) > MAX_TOPICS:
                del self._by_uid[next(iter(self._by_uid))]
        return found
