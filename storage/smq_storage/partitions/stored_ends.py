"""Where all partitions of a topic end, as far as their messages are in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from smq_core.model.entities import Topic
from smq_storage.object_store.store import Store
from smq_storage.partitions.segment_log import KnownFiles, LivingLog
from smq_storage.tables.pinned_reads import read_topic_files

# What is kept of files while the ends are read.
KNOWN_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredEnds:
    """``partitions`` has the Kafka offset after the last message of each, ``segments`` how many messages each living
    segment has in files.
    """

    partitions: Mapping[int, int]
    segments: Mapping[str, int]


def stored_ends(store: Store, topic: Topic) -> StoredEnds:
    """Reads the index, and each living segment's last file.

    Raises UnknownTopic, DataLost and CorruptChunk with the name of a file that is gone or damaged, StoreUnavailable.
    """
    found = read_topic_files(store, topic.name, topic.uid)
    ring = found.index.partitions
    ends = {at: ring.end(at) if ring is not None else 0 for at in range(topic.spec.partitions)}
    segments: dict[str, int] = {}
    known = KnownFiles(KNOWN_BYTES)
    for segment in found.layout.segments:
        log = LivingLog(store=store, topic=topic.name, uid=topic.uid, entry=segment, known=known)
        last = log.last()
        segments[segment.name] = last.file.end if last is not None else 0
        if last is not None:
            partitions = last.ends.range
            for at in range(partitions.start, partitions.stop):
                ends[at] = max(ends[at], last.ends.end(at))
    return StoredEnds(ends, segments)
