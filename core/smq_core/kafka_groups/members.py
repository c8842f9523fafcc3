"""The members of a group: who they are, which protocols they support, and until when they count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from smq_core.kafka_groups.requests import JoinedMember, JoinRequest, Protocol, Ticket
from smq_core.model.entities import Micros


@dataclass(slots=True, kw_only=True)
class GroupMember:
    id: str
    request: JoinRequest
    """Its last one."""
    deadline: Micros | None = None
    """When it counts as gone. None while the group owes it an answer."""
    join: Ticket | None = None
    """Of the join that waits for the next generation."""
    sync: Ticket | None = None
    """Of the sync that waits for the leader's assignment."""
    is_new: bool = True
    """True until it is in a generation."""
    assignment: bytes = b""

    @property
    def instance_id(self) -> str | None:
        return self.request.instance_id

    def metadata(self, protocol: str | None) -> bytes:
        return next((it.metadata for it in self.request.protocols if it.name == protocol), b"")

    def supports(self, protocol: str) -> bool:
        return any(it.name == protocol for it in self.request.protocols)


@dataclass(slots=True)
class GroupMembers:
    """In the order in which they came."""

    by_id: dict[str, GroupMember] = field(default_factory=dict)
    by_instance: dict[str, str] = field(default_factory=dict)
    """The id of each static member."""

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, member: GroupMember) -> None:
        self.by_id[member.id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member.id

    def remove(self, id_: str) -> GroupMember:
        member = self.by_id.pop(id_)
        if member.instance_id is not None and self.by_instance.get(member.instance_id) == id_:
            del self.by_instance[member.instance_id]
        return member

    def metadata_bytes(self) -> int:
        return sum(it.request.size_bytes for it in self.by_id.values())

    def rebalance_timeout(self) -> Micros:
        """How long all of them may take to join again: the longest that any member wants."""
        return max((it.request.rebalance_timeout for it in self.by_id.values()), default=0)

    def support_one_of(self, protocols: tuple[Protocol, ...]) -> bool:
        """Whether all members support one of these."""
        return any(all(it.supports(one.name) for it in self.by_id.values()) for one in protocols)

    def elect_protocol(self) -> str:
        """Of the protocols that all members support, the one that most of them prefer. There has to be one."""
        members = list(self.by_id.values())
        common = [it.name for it in members[0].request.protocols if all(one.supports(it.name) for one in members)]
        votes = Counter(next(it.name for it in one.request.protocols if it.name in common) for one in members)
        return max(common, key=lambda name: votes[name])

    def described(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        return tuple(JoinedMember(it.id, it.instance_id, it.metadata(protocol)) for it in self.by_id.values())
