"""One topic as the leader runs it: core's TopicLeader with what surrounds it in this process."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field

from smq_core.dag import Node, nodes_of
from smq_core.leading import TopicLeader
from smq_core.load import Rates
from smq_core.model import Layout, Phase, SealedSegment, Segment, Topic
from smq_operator.world import Wish


@dataclass(slots=True)
class TopicRun:
    """``leader`` is None until the topic is adopted, and again after an error, until it is built anew."""

    wish: Wish
    topic: Topic | None = None
    leader: TopicLeader | None = None
    problem: str | None = None
    sealed: dict[str, SealedSegment] = field(default_factory=dict)
    """The index, in the order in which segments left the layout."""
    adopting: bool = False
    adopted_wish: Wish | None = None
    retry_at: int = 0
    due: bool = True
    look_at: int = 0
    removed: bool = False
    shown: tuple[str | None, int] = (None, -1)
    """Etag of the layout and number of sealed segments that watchers were last told of."""
    expected: Layout | None = None
    """The layout that is being put, for counting the work it gives to brokers."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return self.wish.name

    @property
    def layout(self) -> Layout | None:
        return self.leader.layout if self.leader is not None else None

    @property
    def quiet(self) -> bool:
        """True when no segment is on its way from one phase to another."""
        layout = self.layout
        return layout is not None and all(s.phase is Phase.OPEN and not s.successors for s in layout.segments)

    def lead(self, topic: Topic, settles_at: int) -> None:
        """Begins to lead the topic from what the filer says."""
        if self.topic is None or self.topic.uid != topic.uid:
            self.sealed = {}
        self.topic = topic
        self.expected = None
        self.leader = TopicLeader(topic, lambda: uuid.uuid4().hex, settles_at=settles_at)
        self.leader.paused = self.wish.paused

    def announce(self) -> None:
        """Wakes everyone who waits for a change."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    async def change(self) -> None:
        """Returns at the next announcement."""
        await self._changed.wait()

    def nodes(self) -> dict[str, Node]:
        """The whole DAG, oldest first, with every end that is known."""
        nodes = nodes_of(self.sealed.values(), self.layout)
        for name, node in nodes.items():
            outcome = self.leader.outcome(name) if self.leader is not None and node.end is None else None
            if outcome is not None:
                nodes[name] = Node(name, node.predecessors, outcome.end, node.opened_at)
        return nodes

    def rates(self) -> Rates:
        """What is written to the topic, per second."""
        total = Rates()
        for load in self.leader.load.segments.values() if self.leader is not None else ():
            total = total.plus(load.fast)
        return total

    def find(self, name: str) -> Segment | None:
        """The segment of that name, or the open one of that range when the name lacks its number."""
        if self.layout is None:
            return None
        for segment in self.layout.segments:
            if segment.name == name:
                return segment
        for segment in self.layout.segments:
            short = segment.name.rpartition("-")[0]
            if short == name and segment.phase is Phase.OPEN and not segment.successors:
                return segment
        return None
