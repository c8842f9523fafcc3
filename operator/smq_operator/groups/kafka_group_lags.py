"""How far groups of Kafka clients are behind in a topic. Only messages in files count, because the filer says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from smq_core.errors import CorruptChunk, DataLost
from smq_core.model.entities import Topic
from smq_operator.groups.kafka_groups import KafkaGroupRecord, KafkaGroups
from smq_operator.runtime.store_pool import StorePool
from smq_storage.partitions.stored_ends import stored_ends

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KafkaGroupLag:
    """``partitions`` has the committed offset and the end of each partition of which the group has committed one.

    None if it is not known, because the group's document or a file of the topic cannot be read.
    """

    group: KafkaGroupRecord
    partitions: Mapping[int, tuple[int, int]] | None

    @property
    def messages(self) -> int | None:
        if self.partitions is None:
            return None
        return sum(max(0, end - committed) for committed, end in self.partitions.values())


@dataclass(frozen=True, slots=True)
class KafkaGroupLags:
    """Use it on the event loop."""

    groups: KafkaGroups
    store: StorePool

    async def of(self, topic: Topic) -> list[KafkaGroupLag]:
        """The groups that have committed offsets of the topic, by name, and those whose documents cannot be read.

        Raises StoreUnavailable.
        """
        if not topic.spec.has_kafka_offsets:
            return []
        records, _ = await self.groups.read()
        mine = sorted((it for it in records if it.may_read(topic.uid)), key=lambda it: it.name)
        if not any(it.stored is not None for it in mine):
            return [KafkaGroupLag(it, None) for it in mine]
        try:
            ends = (await self.store.run(stored_ends, topic)).partitions
        except (DataLost, CorruptChunk) as error:
            log.warning("kafka_groups.lag_unknown", topic=topic.name, message=error.message)
            return [KafkaGroupLag(it, None) for it in mine]
        return [KafkaGroupLag(it, _partitions(it.offsets.get(topic.uid), ends)) for it in mine]

    async def has(self, topic: Topic, name: str) -> bool:
        """Whether there is such a group. Raises StoreUnavailable."""
        if not topic.spec.has_kafka_offsets:
            return False
        records, _ = await self.groups.read()
        return any(it.name == name and it.may_read(topic.uid) for it in records)


def _partitions(offsets: Mapping[int, int] | None, ends: Mapping[int, int]) -> Mapping[int, tuple[int, int]] | None:
    if offsets is None:
        return None
    return {at: (offset, ends.get(at, 0)) for at, offset in sorted(offsets.items())}
