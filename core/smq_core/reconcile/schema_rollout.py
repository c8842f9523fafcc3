"""Which segments to seal next, so that a topic's segments get the newest version of its schema one after another.

The writers of a segment stall while it is sealed. Seals at the same time make each other longer, and nothing requires
that the segments change together. So only a few are sealed at a time, and the others are written to at full speed in
their older version. A new leader continues from the layout, which has the version of each segment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from smq_core.model.entities import Layout, Liveness, Phase, Reason, Segment
from smq_core.scaling.placement import BrokerView

# At most this part (one in eight) of a topic's segments is sealed for a new schema at a time, and one of each
# primary.
SCHEMA_SHARE = 8


def segments_to_seal(
    layout: Layout,
    free: Iterable[Segment],
    version: int,
    sealed: Collection[str],
    brokers: Mapping[str, BrokerView],
) -> list[Segment]:
    """The segments of ``free`` to seal now because their version is older than ``version``, the oldest ones first.

    ``sealed`` names segments of the layout whose seal chunk exists. A seal whose primary is not alive does not count,
    because it may take long. Pending segments wait until they are open: nobody writes to them, and if they were
    replaced, the writers of their predecessors would wait for one more seal.
    """
    stalled = [
        segment.primary.incarnation
        for segment in _being_sealed(layout)
        if segment.name not in sealed and _is_alive(segment.primary.incarnation, brokers)
    ]
    outdated = [s for s in free if s.phase is Phase.OPEN and s.schema_version < version]
    limit = max(1, sum(s.phase is not Phase.PENDING for s in layout.segments) // SCHEMA_SHARE)
    found = []
    for segment in sorted(outdated, key=lambda s: (s.schema_version, s.number)):
        if len(stalled) >= limit:
            break
        if segment.primary.incarnation not in stalled:
            found.append(segment)
            stalled.append(segment.primary.incarnation)
    return found


def is_under_way(layout: Layout) -> bool:
    """Whether a segment is being sealed for a new schema, so that another version may have to wait for its turn."""
    return bool(_being_sealed(layout))


def _being_sealed(layout: Layout) -> list[Segment]:
    return [s for s in layout.segments if s.phase is Phase.SEALING and s.sealed_because is Reason.SCHEMA]


def _is_alive(incarnation: str, brokers: Mapping[str, BrokerView]) -> bool:
    broker = brokers.get(incarnation)
    return broker is not None and broker.liveness is Liveness.ALIVE
