"""What the leader knows of one topic, as far as its resources show it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from smq_core.model.decision import Decision
from smq_core.model.entities import SealedSegment
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.status.health import HealthIssues
from smq_operator.status.topic_snapshot import TopicSnapshot, snapshot_of

# A topic has resources for this many sealed segments, the newest; the index in the filer has all of them.
MAX_SEALED_RESOURCES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSnapshot:
    """The facts behind the Topic's status (``topic``) and its Segment resources.

    ``uid`` and ``generation`` are those of the Topic resource; ``generation`` is None until the leader follows its
    spec. ``sealed`` are the newest sealed segments, ``sealed_count`` counts all of them.
    """

    topic: TopicSnapshot
    uid: str
    generation: int | None = None
    sealed: tuple[SealedSegment, ...] = ()
    sealed_count: int = 0
    decision: Decision | None = None


def resource_snapshot_of(
    managed: ManagedTopic, generation: int | None, uid: str, issues: HealthIssues, decision: Decision | None
) -> ResourceSnapshot:
    """The topic as it is now."""
    return ResourceSnapshot(
        topic=snapshot_of(managed, issues),
        uid=uid,
        generation=generation,
        sealed=tuple(
            heapq.nlargest(MAX_SEALED_RESOURCES, managed.index.sealed.values(), key=lambda entry: entry.number)
        ),
        sealed_count=len(managed.index.sealed),
        decision=decision,
    )
