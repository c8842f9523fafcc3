"""What members of a group send, and what they get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from smq_core.kafka_groups.group_errors import GroupError
from smq_core.model.entities import SECOND, Micros

# Names a request that waits for its answer.
Ticket: TypeAlias = int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Times in microseconds. The defaults are those of Kafka's brokers."""

    initial_rebalance_delay: Micros = 3 * SECOND
    """How long a group without members waits for more of them after the first one."""
    min_session_timeout: Micros = 6 * SECOND
    max_session_timeout: Micros = 1800 * SECOND
    new_member_timeout: Micros = 300 * SECOND
    """How long a new member waits for its first generation before it counts as gone."""
    max_members: int = 1_000
    max_metadata_bytes: int = 8 * 1024 * 1024
    """Of all members' protocols together."""
    max_assignment_bytes: int = 8 * 1024 * 1024
    """Of all members' assignments together."""
    consumer_session_timeout: Micros = 45 * SECOND
    """Of members of the consumer protocol, which do not choose it."""
    consumer_heartbeat_interval: Micros = 5 * SECOND
    """How often those send a heartbeat."""
    max_topics: int = 10_000
    """That the members of a group of the consumer protocol subscribe to. Each of them is looked for in the filer."""
    topic_refresh_interval: Micros = 5 * SECOND
    """After which time a group of the consumer protocol looks for new and deleted topics."""


class Protocol(NamedTuple):
    """An assignor that a member supports, and what it says to the group's leader."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """``new_id`` is the id of the member if it has none yet (``member_id`` is empty). It has to be unique."""

    member_id: str
    new_id: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout: Micros
    rebalance_timeout: Micros
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    must_know_its_id: bool = True
    """A new member without an instance id gets its id first, and joins with it: from version 4 on."""
    may_skip_assignment: bool = True
    """Whether the member knows ``JoinAnswer.skip_assignment``: from version 9 on."""

    @property
    def size_bytes(self) -> int:
        texts = (self.member_id, self.instance_id or "", self.protocol_type, self.client_id)
        return sum(map(len, texts)) + sum(len(it.name) + len(it.metadata) for it in self.protocols)


class JoinedMember(NamedTuple):
    """A member, as the leader sees it."""

    id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """``members`` is only for the leader, whose turn it is to assign."""

    error: GroupError
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """``assignments`` by member id, from the leader."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: GroupError
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


Answer: TypeAlias = JoinAnswer | SyncAnswer
