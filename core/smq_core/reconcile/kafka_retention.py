"""What groups of Kafka clients have not read, of the segments that retention would remove.

Such a group commits Kafka offsets of partitions, and a segment has a part of each of its partitions. The group has read
a segment if its offset of each partition is at the end of that part, or beyond it. Where it has committed nothing of a
partition, it may still want the first message that is there. A part without messages keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from smq_core.model.entities import Micros, TopicSpec
from smq_core.model.partition_offsets import PartitionOffsets
from smq_core.reconcile.retention import Removal, RetentionPlan, is_active


@dataclass(frozen=True, slots=True)
class KafkaGroupProgress:
    """A group that has committed offsets of the topic, by partition. ``last_active_at`` as in GroupProgress."""

    name: str
    offsets: Mapping[int, int]
    last_active_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class SegmentOffsets:
    """Where the partitions of a sealed segment begin and end. One that is not in ``starts`` may begin at 0."""

    starts: Mapping[int, int]
    ends: PartitionOffsets


class KafkaHolds:
    """Goes through the removals of a plan in their order, and leaves those out that Kafka clients hold.

    If the topic keeps what is unread, active groups hold segments, and so do segments of which it is not known where
    their partitions end. If not, each removal gets the names of the groups that have not read it.
    """

    def __init__(self, spec: TopicSpec, groups: Iterable[KafkaGroupProgress], now: Micros) -> None:
        self._keeps_unread = spec.retention_keeps_unread
        self._groups = [
            group for group in groups if not self._keeps_unread or is_active(spec, group.last_active_at, now)
        ]
        self._kept: set[str] = set()
        self._removals: list[Removal] = []
        self._retained: dict[str, list[str]] = {}

    def needs_offsets(self, removal: Removal) -> bool:
        """Whether ``decide`` has to know where the segment's partitions end."""
        return bool(self._groups) and removal.segment.end > 0 and not self._follows_kept(removal)

    def decide(self, removal: Removal, offsets: SegmentOffsets | None) -> None:
        """``offsets`` is None if they are not needed, or not known."""
        name = removal.segment.name
        if self._follows_kept(removal):
            self._kept.add(name)
            return
        unread: dict[str, int] = {}
        if self.needs_offsets(removal):
            if offsets is None and self._keeps_unread:
                self._kept.add(name)
                return
            counts = {it.name: unread_messages(it, offsets) for it in self._groups} if offsets is not None else {}
            unread = {name: messages for name, messages in sorted(counts.items()) if messages}
        if unread and self._keeps_unread:
            self._kept.add(name)
            self._retained[name] = [shown_name(group) for group in unread]
            return
        self._removals.append(replace(removal, kafka_unread=unread))

    def plan(self, before: RetentionPlan) -> RetentionPlan:
        """The plan whose removals were decided."""
        return RetentionPlan(self._removals, {**before.retained, **self._retained})

    def _follows_kept(self, removal: Removal) -> bool:
        return any(name in self._kept for name in removal.segment.predecessors)


def unread_messages(group: KafkaGroupProgress, segment: SegmentOffsets) -> int:
    """How many messages of the segment the group has not read. Too many where a beginning is not known."""
    partitions = segment.ends.range
    return sum(
        max(0, segment.ends.end(at) - max(group.offsets.get(at, 0), segment.starts.get(at, 0)))
        for at in range(partitions.start, partitions.stop)
    )


def shown_name(group: str) -> str:
    """A group of the library may have the same name."""
    return f"{group} (Kafka)"
