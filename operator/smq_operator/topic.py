"""One topic as the leader runs it: core's TopicLeader with what surrounds it in this process."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from smq_core.dag import Node, nodes_of
from smq_core.leading import TopicLeader
from smq_core.load import Rates
from smq_core.model import Layout, Phase, RemovedSegment, SealedSegment, Segment, Topic
from smq_core.numbers import NONE, Numbers, contains, of, union
from smq_core.retention import Removal
from smq_operator.world import Wish
from smq_storage.index import Index

LOOK_EVERY = 300_000
"""Microseconds between two looks at a topic where segments stay as they are; where they do not it is every tick."""
LOOK_AT_REST = 3_000_000
"""The same for one to which nobody has written for ``RESTS_AFTER``: only its age, and slow means, change anything."""
RESTS_AFTER = 10_000_000


@dataclass(slots=True)
class TopicRun:
    """``leader`` is None until the topic is adopted, and again after an error, until it is built anew."""

    wish: Wish
    topic: Topic | None = None
    leader: TopicLeader | None = None
    problem: str | None = None
    sealed: dict[str, SealedSegment] = field(default_factory=dict)
    """The index, in the order in which segments left the layout."""
    removed_numbers: Numbers = NONE
    """Those of the segments that retention took out of the index."""
    gone: dict[str, RemovedSegment] = field(default_factory=dict)
    """The last removed segments, and all whose files are still there."""
    index_changes: int = 0
    index_read: bool = False
    held: Mapping[str, list[str]] = field(default_factory=dict)
    """Segments beyond the limits of retention, and the groups that they stay for."""
    adopting: bool = False
    adopted_wish: Wish | None = None
    retry_at: int = 0
    due: bool = True
    look_at: int = 0
    removed: bool = False
    shown: tuple[str | None, int] = (None, -1)
    """Etag of the layout and number of changes of the index that watchers were last told of."""
    expected: Layout | None = None
    """The layout that is being put, for counting the work it gives to brokers."""
    counted: Layout | None = None
    """The layout whose work is counted now."""
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

    def look_after(self, now: int) -> int:
        """When to look at it again, after a step at which there was nothing to do, unless there is news before."""
        if not self.quiet or self.leader is None:
            return now
        at_rest = self.leader.rests and now - self.leader.load.changed_at >= RESTS_AFTER
        return now + (LOOK_AT_REST if at_rest else LOOK_EVERY)

    def stirred(self, now: int) -> None:
        """Somebody writes to it: it is at rest no more."""
        self.look_at = min(self.look_at, now + LOOK_EVERY)

    def lead(self, topic: Topic, settles_at: int) -> None:
        """Begins to lead the topic from what the filer says."""
        if self.topic is None or self.topic.uid != topic.uid:
            self.sealed, self.removed_numbers, self.gone, self.held = {}, NONE, {}, {}
            self.index_read = False
        self.topic = topic
        self.expected = None
        self.leader = TopicLeader(topic, lambda: uuid.uuid4().hex, settles_at=settles_at)
        self.leader.paused = self.wish.paused

    def take_index(self, index: Index) -> None:
        """Takes in an index that was read. What this leader appended since stays, what was removed is gone for good."""
        self.index_read = True
        before = (self.sealed.keys(), self.removed_numbers)
        known = self.sealed | {entry.name: entry for entry in index.entries}
        self.removed_numbers = union(self.removed_numbers, index.removed)
        self.sealed = {name: entry for name, entry in known.items() if not contains(self.removed_numbers, entry.number)}
        self.gone = {segment.name: segment for segment in index.gone}
        if before != (self.sealed.keys(), self.removed_numbers):
            self.index_changes += 1

    def take_entries(self, entries: Iterable[SealedSegment]) -> None:
        """Takes in what this leader appended to the index."""
        for entry in entries:
            if entry.name not in self.sealed and not contains(self.removed_numbers, entry.number):
                self.sealed[entry.name] = entry
                self.index_changes += 1

    def segments_removed(self, removals: Iterable[Removal], now: int) -> None:
        """Retention took these out of the index."""
        for removal in removals:
            it = removal.segment
            self.sealed.pop(it.name, None)
            self.gone[it.name] = RemovedSegment(it.name, it.number, it.end, now, it.bytes, unread=removal.unread)
            self.removed_numbers = union(self.removed_numbers, of([it.number]))
        self.index_changes += 1

    def files_deleted(self, names: Iterable[str]) -> None:
        """The files of these removed segments are gone."""
        for name in names:
            if name in self.gone:
                self.gone[name] = replace(self.gone[name], files=False)

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
