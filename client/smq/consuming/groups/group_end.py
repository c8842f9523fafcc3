"""Whether a group has read everything, as its leader, the brokers and the filer say."""

from __future__ import annotations

import time
from collections.abc import Mapping

from smq.reading.topic_location import TopicLocation
from smq.reading.topic_state import StateLoader, TopicState
from smq.transport.leader_client import LeaderClient
from smq.transport.topic_view import TopicView
from smq_core.reading.segment_dag import ReadProgress
from smq_proto.v1 import leader_pb2 as lpb

# A result counts for this time. Then the end is searched again, because other members' segments may have more.
KNOWN_SECONDS = 1.0
# Between two searches, each of which costs a few requests to filer, brokers and leader.
PAUSE_SECONDS = 0.3


class GroupEnd:
    """One thread searches, and others ask for what it found. Times are monotonic seconds."""

    def __init__(self, view: TopicView, leader: LeaderClient, group: str) -> None:
        self._view = view
        self._leader = leader
        self._group = group
        self._found: tuple[Mapping[str, int], bool, float] | None = None
        """The positions of this member, whether that is the end, and when it was searched."""

    def is_known(self, own: Mapping[str, int]) -> bool:
        """Whether the last search found the end, with this member at these positions."""
        found = self._found
        return found is not None and found[1] and found[0] == own and time.monotonic() - found[2] < KNOWN_SECONDS

    @property
    def may_search(self) -> bool:
        """False for a moment after a search."""
        return self._found is None or time.monotonic() - self._found[2] >= PAUSE_SECONDS

    def searched(self, own: Mapping[str, int], is_end: bool) -> None:
        self._found = dict(own), is_end, time.monotonic()

    def search(self, own: Mapping[str, int]) -> None:
        """Asks whether the group has read everything, if this member has returned ``own``, ``{segment: next offset}``.

        What other members have read and not committed counts as unread. Raises Unavailable.
        """
        location = TopicLocation(
            self._view.name, self._view.snapshot.topic.uid, self._view.store_settings, self._view.dialer.via
        )
        # The ends come first: a group that has committed them later has read what was there.
        with StateLoader(location, self._view.store()) as loader:
            state = loader.load()
        reply: lpb.GroupPositions = self._leader.call(
            "GetPositions", lpb.PositionsRequest(topic=self._view.name, group=self._group)
        )
        self.searched(own, has_read_all(state, dict(reply.positions), own))


def has_read_all(state: TopicState, committed: Mapping[str, int], own: Mapping[str, int]) -> bool:
    """Whether nothing of the topic is left for a group with these committed positions, and those of this member."""
    nodes = state.nodes()
    progress = ReadProgress()
    progress.update(nodes)
    for positions in (committed, own):
        for segment, offset in positions.items():
            if segment in nodes:
                progress.advance(segment, offset)
    return all(
        progress.is_read(name) or (node.end is None and progress.positions.get(name, 0) >= state.ends[name])
        for name, node in nodes.items()
    )
