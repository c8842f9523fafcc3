"""Leaves out of a plan of retention what groups of Kafka clients have not read.

Where the partitions of a segment end is read when the segment would be removed. A sealed segment never changes, so what
was read is kept while groups hold the segment. These follow no other one that is held: they have each partition once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import structlog

from smq_core.errors import CorruptChunk, DataLost
from smq_core.model.entities import Micros, SealedSegment, Topic
from smq_core.reconcile.kafka_retention import KafkaGroupProgress, KafkaHolds, SegmentOffsets
from smq_core.reconcile.retention import RetentionPlan
from smq_storage.object_store.store import Store
from smq_storage.partitions.file_rows import FileRows
from smq_storage.partitions.segment_log import KnownFiles, SealedLog

log = structlog.get_logger(__name__)

# Of one segment, while it is read: its file list, and its first file.
KNOWN_BYTES = 4 * 1024 * 1024
DECODED_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class KafkaReaders:
    """The groups that have committed offsets of a topic, and by segment what was read of its partitions."""

    groups: Sequence[KafkaGroupProgress]
    offsets: dict[str, SegmentOffsets] = field(default_factory=dict)

    def forget_all_but(self, segments: Collection[str]) -> None:
        for name in self.offsets.keys() - segments:
            del self.offsets[name]


def hold_unread(
    store: Store, topic: Topic, plan: RetentionPlan, readers: KafkaReaders, now: Micros, max_reads: int
) -> RetentionPlan:
    """The plan without what groups hold. Reads at most that many segments; the rest waits for the next pass.

    Raises StoreUnavailable.
    """
    holds = KafkaHolds(topic.spec, readers.groups, now)
    reads = 0
    for removal in plan.removals:
        name, offsets = removal.segment.name, None
        if holds.needs_offsets(removal):
            offsets = readers.offsets.get(name)
            if offsets is None and reads < max_reads:
                reads += 1
                offsets = read_segment_offsets(store, topic, removal.segment)
                if offsets is not None:
                    readers.offsets[name] = offsets
        holds.decide(removal, offsets)
    return holds.plan(plan)


def read_segment_offsets(store: Store, topic: Topic, entry: SealedSegment) -> SegmentOffsets | None:
    """Where the partitions of a segment begin and end. None if its seal chunk does not say it, or is gone.

    Raises StoreUnavailable.
    """
    known = KnownFiles(KNOWN_BYTES)
    segment = SealedLog(store=store, topic=topic.name, uid=topic.uid, entry=entry, known=known)
    try:
        ends = segment.seal().partitions
    except (DataLost, CorruptChunk) as error:
        log.warning("retention.offsets_unknown", topic=topic.name, segment=entry.name, message=error.message)
        return None
    if ends is None:
        return None
    starts: dict[int, int] = {}
    try:
        first = segment.file(0)
        if first is not None:
            rows = FileRows(store, DECODED_BYTES, KNOWN_BYTES)
            for partition in range(ends.range.start, ends.range.stop):
                starts[partition] = first.ends.end(partition) - rows.count(entry.name, first.file, partition)
    except (DataLost, CorruptChunk) as error:  # its partitions may begin anywhere
        log.warning("retention.starts_unknown", topic=topic.name, segment=entry.name, message=error.message)
        starts = {}
    return SegmentOffsets(starts, ends)
