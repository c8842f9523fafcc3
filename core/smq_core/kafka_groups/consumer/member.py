"""A member: what it subscribes to, and the partitions that it may have, as the group's document keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from smq_core.kafka_groups.consumer.partitions import PartitionsByTopic
from smq_core.model.entities import Micros

# The epoch with which a member joins.
JOINING = 0
# The epochs with which a member leaves: for good, or as a static member that comes back.
LEAVING, LEAVING_FOR_NOW = -1, -2


class MemberState(Enum):
    """How far a member is on its way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    """It has to give up partitions before it enters the next epoch."""
    UNRELEASED = "unreleased"
    """It waits for partitions that others have not given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """``names`` are the topics that it has named, ``matched`` those that match its ``pattern``.

    ``epoch`` is LEAVING_FOR_NOW while a static member is away. ``assigned`` are the partitions that it may use,
    ``revoking`` those that it has to give up. Nobody else gets any of both.
    """

    id: str
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: PartitionsByTopic = field(default_factory=dict)
    revoking: PartitionsByTopic = field(default_factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: Micros = 0
    assignor: str | None = None
    names: frozenset[str] = frozenset()
    pattern: str = ""
    matched: frozenset[str] = frozenset()

    @property
    def topics(self) -> frozenset[str]:
        """The names of all topics that it subscribes to."""
        return self.names | self.matched

    @property
    def size_bytes(self) -> int:
        """Of its subscription."""
        return len(self.pattern) + sum(map(len, self.names)) + sum(map(len, self.matched))

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


Members = Mapping[str, ConsumerMember]
