"""The partitions that this broker leads, from the segments that it hosts."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence

from smq_broker.kafka.topics import kafka_name, topic_id
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.registry import SegmentRegistry
from smq_core.model.entities import number_of


class Primaries:
    """Finds a segment for each of the many partitions of a request. Used by the listener's loop only."""

    def __init__(self, registry: SegmentRegistry) -> None:
        self._registry = registry
        self._version = -1
        self._by_topic: dict[str, list[HostedSegment]] = {}
        self._by_partition: dict[str, Mapping[int, Sequence[HostedSegment]]] = {}
        """Of topics that were looked for, the newest segment of each partition first."""
        self._names: dict[uuid.UUID, str] = {}
        """What clients call the topics with these ids, which are those of now or of before."""

    def find(self, topic: str, partition: int) -> HostedSegment | None:
        """The newest segment with this partition of which this broker is the primary, in whatever state it is.

        A sealed one may be of a former topic of the name, so it counts only if there is none that is not sealed.
        """
        if self._registry.version != self._version:
            self._read_registry()
        found = self._by_partition.get(topic)
        if found is None:
            found = self._by_partition[topic] = _by_partition(self._by_topic.get(topic, ()))
        segments = found.get(partition, ())
        return next((it for it in segments if it.machine.outcome is None), segments[0] if segments else None)

    def name_of(self, id_: uuid.UUID) -> str | None:
        """What clients call the topic with this id, if this broker leads one of its partitions, or has led one."""
        if self._registry.version != self._version:
            self._read_registry()
        return self._names.get(id_)

    def _read_registry(self) -> None:
        # First, so that a segment that is added meanwhile is read the next time.
        self._version = self._registry.version
        self._by_partition.clear()
        self._by_topic, self._names = {}, {}
        for hosted in self._registry.all():
            if hosted.is_primary:
                self._names[topic_id(hosted.topic.uid)] = kafka_name(hosted.topic)
                self._by_topic.setdefault(hosted.topic.name, []).append(hosted)


def _by_partition(segments: Sequence[HostedSegment]) -> Mapping[int, Sequence[HostedSegment]]:
    found: defaultdict[int, list[HostedSegment]] = defaultdict(list)
    for hosted in sorted(segments, key=lambda it: number_of(it.name), reverse=True):
        for partition in range(hosted.segment.range.start, hosted.segment.range.stop):
            found[partition].append(hosted)
    return dict(found)
