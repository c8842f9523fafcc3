"""The documents of groups in the filer, for the event loop."""

from __future__ import annotations

from smq_broker.kafka.executor import Blocking
from smq_storage.catalog.deleted_topics import read_deleted_topic
from smq_storage.catalog.kafka_groups import (
    StoredKafkaGroup,
    list_kafka_groups,
    put_kafka_group,
    read_kafka_group,
)
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store

# Clients wait a few seconds for a commit before they repeat it.
WRITE_TIMEOUT_SECONDS = 5.0


class GroupFiles:
    """Its calls do not block the loop. They raise the errors of the functions that they call."""

    def __init__(self, store: Store, blocking: Blocking) -> None:
        self._store = store
        self._blocking = blocking

    async def read(self, name: str) -> tuple[StoredKafkaGroup, str] | None:
        return await self._blocking.call(lambda: read_kafka_group(self._store, name))

    async def write(self, group: StoredKafkaGroup, etag: str | None) -> str:
        policy = RetryPolicy(timeout_seconds=WRITE_TIMEOUT_SECONDS)
        return await self._blocking.call(lambda: put_kafka_group(self._store, group, etag, policy))

    async def all(self) -> list[StoredKafkaGroup]:
        """Those that are not deleted."""
        return await self._blocking.call(lambda: [it for it in list_kafka_groups(self._store) if not it.deleted])

    async def is_deleted_topic(self, uid: str) -> bool:
        return await self._blocking.call(lambda: read_deleted_topic(self._store, uid) is not None)
