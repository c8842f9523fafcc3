"""What the admin API says of groups of Kafka clients."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from smq.admin.wire_times import time_of
from smq_proto.v1 import groups_pb2


@dataclass(frozen=True, slots=True)
class KafkaGroupPartition:
    """The messages ``committed .. end - 1`` are not committed, by Kafka's offsets."""

    partition: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        """How many messages these are."""
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupInfo:
    """A group of Kafka clients that has committed offsets of a topic. ``unreadable``: its file is damaged.

    ``lag`` is the number of messages in files that it has not committed; None if that is not known. Its members are
    known to its coordinator, which Kafka's tools ask. ``partitions`` are those for which it has committed.
    """

    name: str
    unreadable: bool = False
    lag: int | None = None
    partitions: tuple[KafkaGroupPartition, ...] = ()
    committed_at: datetime | None = None
    last_active_at: datetime | None = None


def kafka_group_info(g: groups_pb2.GroupList.KafkaGroup) -> KafkaGroupInfo:
    """The group as the leader reports it."""
    return KafkaGroupInfo(
        name=g.name,
        unreadable=g.unreadable,
        lag=g.lag if g.HasField("lag") else None,
        partitions=tuple(KafkaGroupPartition(it.partition, it.committed, it.end) for it in g.partitions),
        committed_at=time_of(g.committed_at),
        last_active_at=time_of(g.last_active_at),
    )
