"""One topic as this leader manages it: core's TopicReconciler and its state in this process."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.errors import CorruptDocument
from smq_core.model.entities import Layout, Micros, Phase, Segment, Topic, TopicSchema
from smq_core.model.loss import Loss
from smq_core.model.schema_evolution import newest_schema
from smq_core.reading.segment_dag import SegmentNode, build_nodes
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_core.reconcile.topic_story import TopicStory
from smq_core.scaling.segment_load import TrafficRates
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics.index_copy import IndexCopy
from smq_operator.runtime.problems import LeaderProblems

# How often a stable topic is reconciled. A topic that is not stable is reconciled at every tick.
CHECK_INTERVAL_US = 300_000
# The same for a topic without traffic for ``IDLE_AFTER_US``: only age and slow averages can still change it.
IDLE_CHECK_INTERVAL_US = 3_000_000
IDLE_AFTER_US = 10_000_000


@dataclass(slots=True)
class ManagedTopic:
    """``reconciler`` is None until the topic is adopted, and after an error until it is adopted again."""

    desired: DesiredTopic
    topic: Topic | None = None
    reconciler: TopicReconciler | None = None
    story: TopicStory = field(default_factory=TopicStory)
    problem: str | None = None
    unreadable: CorruptDocument | None = None
    """Which of its documents in the filer cannot be read, and why. The leader does not lead the topic until then."""
    index: IndexCopy = field(default_factory=IndexCopy)
    retention_held: Mapping[str, list[str]] = field(default_factory=dict)
    """Segments beyond the retention limits, and the groups that have not read them yet."""
    unfinished_publishes: dict[str, Micros] = field(default_factory=dict)
    """When atomic publishes were committed that are not complete, by app. Retention removes nothing meanwhile."""
    clock_skew_us: int = 0
    """How far the leader's clock is ahead of the filer's, if the two differ so much that retention may be late."""
    adopting: bool = False
    last_adopted: DesiredTopic | None = None
    retry_at: int = 0
    due: bool = True
    next_check_at: int = 0
    deleted: bool = False
    announced_version: tuple[str | None, int] = (None, -1)
    """Etag of the layout and number of index changes at the last announcement."""
    counted_layout: Layout | None = None
    """The layout whose assigned work is counted now."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return self.desired.name

    @property
    def layout(self) -> Layout | None:
        return self.reconciler.layout if self.reconciler is not None else None

    @property
    def pending_layout(self) -> Layout | None:
        """The layout that is being written; the work that it assigns counts already."""
        return self.reconciler.layout_in_flight if self.reconciler is not None else None

    @property
    def layout_known(self) -> bool:
        """Whether this leader has read whether there is a layout."""
        return self.reconciler is not None and self.reconciler.layout_known

    @property
    def newest_schema(self) -> TopicSchema:
        """The newest version of its schema, as far as this leader has read it; no columns if it has none."""
        return newest_schema(self.layout, self.topic.spec.schema if self.topic is not None else ())

    @property
    def rejection(self) -> str | None:
        """Why the desired state, or a part of it, is not followed."""
        return self.problem or (self.reconciler.schema_problem if self.reconciler is not None else None)

    @property
    def filer_problem(self) -> str:
        """What of the filer a change of the layout waits for; empty if it waits for something else."""
        if self.reconciler is not None and self.reconciler.write_failure:
            return self.reconciler.write_failure
        return "it has not answered the write of the layout yet" if self.pending_layout is not None else ""

    @property
    def is_stable(self) -> bool:
        """Whether every segment is open and none is being replaced."""
        layout = self.layout
        return layout is not None and all(s.phase is Phase.OPEN and not s.successors for s in layout.segments)

    def next_check_after(self, now: int) -> int:
        """When to reconcile it again after a step without effects, unless it is enqueued before."""
        if not self.is_stable or self.reconciler is None:
            return now
        idle = self.reconciler.is_idle and now - self.reconciler.load.changed_at >= IDLE_AFTER_US
        return now + (IDLE_CHECK_INTERVAL_US if idle else CHECK_INTERVAL_US)

    def mark_active(self, now: int) -> None:
        """Traffic was reported: the topic is reconciled at the interval of active topics again."""
        self.next_check_at = min(self.next_check_at, now + CHECK_INTERVAL_US)

    def start_reconciler(self, topic: Topic, warm_up_until: int) -> None:
        """Creates a reconciler, which reads the topic's state from the filer."""
        if self.topic is None or self.topic.uid != topic.uid:
            self.index.reset()
            self.retention_held = {}
            self.story = TopicStory()
        self.topic = topic
        self.reconciler = TopicReconciler(
            topic, lambda: uuid.uuid4().hex, warm_up_until=warm_up_until, story=self.story
        )
        self.reconciler.load.paused = self.desired.paused

    def losses(self) -> dict[str, Loss]:
        """What sealed segments have lost, also those that are not in the index yet."""
        found = {name: entry.lost for name, entry in self.index.sealed.items() if entry.lost is not None}
        for segment in self.layout.segments if self.layout is not None else ():
            outcome = self.reconciler.outcome(segment.name) if self.reconciler is not None else None
            if outcome is not None and outcome.lost is not None and segment.name not in self.index.sealed:
                found[segment.name] = outcome.lost
        return found

    def notify_changed(self) -> None:
        """Wakes every coroutine in ``wait_for_change``."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    async def wait_for_change(self) -> None:
        """Returns at the next ``notify_changed``."""
        await self._changed.wait()

    def nodes(self) -> dict[str, SegmentNode]:
        """The whole segment DAG, oldest first, with every known end offset."""
        nodes = build_nodes(self.index.sealed.values(), self.layout)
        for name, node in nodes.items():
            outcome = self.reconciler.outcome(name) if self.reconciler is not None and node.end is None else None
            if outcome is not None:
                nodes[name] = SegmentNode(name, node.predecessors, outcome.end, node.opened_at)
        return nodes

    def readable_ends(self) -> dict[str, int]:
        """The end of each living segment: the final one, or the last that was reported. Unknown ones are absent."""
        if self.reconciler is None or self.layout is None:
            return {}
        ends = self.reconciler.watermarks
        for segment in self.layout.segments:
            outcome = self.reconciler.outcome(segment.name)
            if outcome is not None:
                ends[segment.name] = outcome.end
        return {it.name: ends[it.name] for it in self.layout.segments if it.name in ends}

    def message_count(self, ends: Mapping[str, int]) -> int | None:
        """How many messages the topic holds with these :meth:`readable_ends`; None while one is unknown."""
        if self.layout is None or not self.index.is_read:
            return None
        living = [it.name for it in self.layout.segments if it.name not in self.index.sealed]
        if any(name not in ends for name in living):
            return None
        return self.index.message_count() + sum(ends[name] for name in living)

    def quarantine(self, error: CorruptDocument, problems: LeaderProblems) -> None:
        """A document of the topic cannot be read. It is left in place, and read again and again."""
        self.unreadable = error
        message = f"{error.message}. The leader does not lead the topic until the file is restored"
        problems.quarantine(error.path, message, self.name)

    def clear_quarantine(self, problems: LeaderProblems) -> None:
        """Its documents can be read."""
        if self.unreadable is not None:
            problems.readable(self.unreadable.path)
            self.unreadable = None

    def rates(self) -> TrafficRates:
        """The traffic of the topic per second."""
        total = TrafficRates()
        for load in self.reconciler.load.segments.values() if self.reconciler is not None else ():
            total = total.plus(load.fast)
        return total

    def find(self, name: str) -> Segment | None:
        """The segment of that name, or the open segment of that range if the name lacks its number."""
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
