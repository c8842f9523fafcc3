"""What a member sends with each heartbeat, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.kafka_groups.consumer.assignors import ASSIGNORS
from smq_core.kafka_groups.consumer.member import JOINING, LEAVING, LEAVING_FOR_NOW
from smq_core.kafka_groups.consumer.partitions import Partitions, PartitionsByTopic
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.model.entities import Micros


class HeartbeatRefused(Exception):
    """A member gets this error, and the message that says what to do."""

    def __init__(self, error: GroupError, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """None stands for what has not changed since the member's last heartbeat.

    ``matched`` are the topics that match ``pattern``, as the coordinator has found them. ``owned`` are the partitions
    that the member uses.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: Micros | None = None
    names: frozenset[str] | None = None
    pattern: str | None = None
    matched: frozenset[str] | None = None
    assignor: str | None = None
    owned: Partitions | None = None

    @property
    def says_all(self) -> bool:
        """A member says all when it joins, and after a heartbeat whose answer it has not got."""
        is_full = self.rebalance_timeout is not None and self.owned is not None
        return self.epoch == JOINING or (is_full and (self.names is not None or self.pattern is not None))

    def check(self) -> None:
        """Raises HeartbeatRefused."""
        reason = self._why_invalid()
        if reason is not None:
            raise HeartbeatRefused(GroupError.INVALID_REQUEST, reason)
        if self.assignor is not None and self.assignor not in ASSIGNORS:
            known = ", ".join(sorted(ASSIGNORS))
            raise HeartbeatRefused(
                GroupError.UNSUPPORTED_ASSIGNOR, f"there is no assignor {self.assignor}: use one of {known}"
            )

    def _why_invalid(self) -> str | None:
        if not self.member_id:
            return "MemberId can't be empty."
        if self.instance_id == "" or self.rack_id == "":
            return f"{'InstanceId' if self.instance_id == '' else 'RackId'} can't be empty."
        if self.epoch < LEAVING_FOR_NOW:
            return "MemberEpoch is invalid."
        if self.epoch == LEAVING_FOR_NOW and self.instance_id is None:
            return "InstanceId can't be null."
        if self.epoch == JOINING:
            if self.rebalance_timeout is None:
                return "RebalanceTimeoutMs must be provided in first request."
            if self.owned is None or self.owned:
                return "TopicPartitions must be empty when (re-)joining."
            if self.names is None and self.pattern is None:
                return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        return None

    @property
    def leaves(self) -> bool:
        return self.epoch in (LEAVING, LEAVING_FOR_NOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """``assignment`` is None if the member has it."""

    error: GroupError
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    heartbeat_interval: Micros = 0
    assignment: PartitionsByTopic | None = None
