"""Whether a group has read everything, as its leader, the brokers and the filer say."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from smq.reading.topic_location import location_of
from smq.reading.topic_state import StateLoader, TopicState
from smq.transport.topic_view import TopicView
from smq_core.reading.segment_dag import ReadProgress
from smq_proto.v1 import groups_pb2
from smq_proto.v1.groups_pb2_grpc import GroupsStub

# A result counts again for this time, for programs that look twice. Other members' segments may have more soon.
KNOWN_SECONDS = 1.0
# Between two searches, each of which costs a few requests to filer, brokers and leader.
PAUSE_SECONDS = 0.3


@dataclass(slots=True)
class FoundEnd:
    """What a search found, with this member at those positions. ``at``: when, in monotonic seconds."""

    own: Mapping[str, int]
    is_end: bool
    at: float
    is_used: bool = False


class GroupEnd:
    """One thread searches, and others ask for what it found. Times are monotonic seconds."""

    def __init__(self, view: TopicView, groups: GroupsStub, group: str) -> None:
        self._view = view
        self._groups = groups
        self._group = group
        self._found: FoundEnd | None = None

    def is_known(self, own: Mapping[str, int]) -> bool:
        """Whether the last search found the end, with this member at these positions.

        A result counts once, however old it is, because the program may poll for longer than a search takes.
        """
        found = self._found
        if found is None:
            return False
        counts = not found.is_used or time.monotonic() - found.at < KNOWN_SECONDS
        found.is_used = True
        return counts and found.is_end and found.own == own

    @property
    def may_search(self) -> bool:
        """False for a moment after a search."""
        return self._found is None or time.monotonic() - self._found.at >= PAUSE_SECONDS

    def searched(self, own: Mapping[str, int], is_end: bool) -> None:
        self._found = FoundEnd(dict(own), is_end, time.monotonic())

    def search(self, own: Mapping[str, int]) -> None:
        """Asks whether the group has read everything, if this member has returned ``own``, ``{segment: next offset}``.

        What other members have read and not committed counts as unread. Raises Unavailable.
        """
        # The ends come first: a group that has committed them later has read what was there.
        with StateLoader(location_of(self._view), self._view.store.open()) as loader:
            state = loader.load()
        reply: groups_pb2.GroupPositions = self._groups.GetPositions(
            groups_pb2.GetPositionsRequest(topic=self._view.name, group=self._group)
        )
        self.searched(own, has_read_all(state, dict(reply.positions), own))


def has_read_all(state: TopicState, committed: Mapping[str, int], own: Mapping[str, int]) -> bool:
    """Whether nothing of the topic is left for a group with these committed positions, and those of this member.

    While no broker reports how far a living segment reaches, it may have messages that are in no file yet.
    """
    nodes = state.nodes()
    progress = ReadProgress()
    progress.update(nodes)
    for positions in (committed, own):
        for segment, offset in positions.items():
            if segment in nodes:
                progress.advance(segment, offset)
    return all(
        progress.is_read(name)
        or (node.end is None and name in state.flushed and progress.positions.get(name, 0) >= state.ends[name])
        for name, node in nodes.items()
    )
