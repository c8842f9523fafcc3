"""The partitions that this broker leads, from the segments that it hosts."""

from __future__ import annotations

from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.registry import SegmentRegistry
from smq_core.model.entities import number_of


def find_primary(registry: SegmentRegistry, topic: str, partition: int) -> HostedSegment | None:
    """The newest segment with this partition of which this broker is the primary, in whatever state it is.

    A sealed one may be of a former topic of the name, so it counts only if there is none that is not sealed.
    """
    found = [
        hosted
        for hosted in registry.all()
        if hosted.is_primary and hosted.topic.name == topic and partition in hosted.segment.range
    ]
    return max(found, key=lambda hosted: (hosted.machine.outcome is None, number_of(hosted.name)), default=None)
