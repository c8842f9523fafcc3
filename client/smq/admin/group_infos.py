"""What the admin API says of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from smq.admin.wire_times import time_of
from smq_proto.v1 import groups_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSegment:
    """A segment that a group has not read to its end: the messages ``position .. end - 1`` are not committed.

    ``member`` is to whom it is assigned; empty if to nobody.
    """

    segment: str
    position: int
    end: int
    member: str = ""
    waits_for_commit: bool = False
    """The member has returned every message, and what follows the segment is read when it has committed the end."""

    @property
    def lag(self) -> int:
        """How many messages these are."""
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """One consumer group of a topic; ``positions`` are the committed ones. ``unreadable``: their file is damaged.

    ``lag`` is the number of messages that the group has not committed, ``lag_seconds`` about the age of the oldest of
    them; both are None if they are not known. They are as of the brokers' last reports, which come each second.
    ``segments`` has those that it has not read to their ends, the oldest first. ``committed_at`` and ``last_active_at``
    (when it last had a member) are None if that is unknown; the second one also if it has members now.
    """

    name: str
    generation: int
    members: tuple[str, ...]
    positions: dict[str, int] = field(default_factory=dict)
    unreadable: bool = False
    lag: int | None = None
    lag_seconds: float | None = None
    segments: tuple[GroupSegment, ...] = ()
    committed_at: datetime | None = None
    last_active_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class GroupReset:
    """A change of a group's positions. ``before`` is empty for a group that is new, or that had no positions."""

    group: str
    before: dict[str, int]
    positions: dict[str, int]


def group_info(g: groups_pb2.GroupList.Group) -> GroupInfo:
    """The group as the leader reports it."""
    return GroupInfo(
        name=g.name,
        generation=g.generation,
        members=tuple(g.members),
        positions=dict(g.positions),
        unreadable=g.unreadable,
        lag=g.lag if g.HasField("lag") else None,
        lag_seconds=g.lag_seconds if g.HasField("lag_seconds") else None,
        segments=tuple(
            GroupSegment(
                segment=s.segment, position=s.position, end=s.end, member=s.member, waits_for_commit=s.waits_for_commit
            )
            for s in g.segments
        ),
        committed_at=time_of(g.committed_at),
        last_active_at=time_of(g.last_active_at),
    )
