"""Trims a topic: one pass of retention that an administrator starts, with a time in place of the topic's limits.

So everything that holds for retention holds here: whole sealed segments are removed, the oldest first. Both clocks must
say that a segment is old enough. Unfinished publishes, groups that have not read it, readers' pins and the grace of
removed files are respected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from smq_core.errors import Unavailable
from smq_core.model.entities import Layout, Micros, SealedSegment, Topic, TopicSpec
from smq_core.reconcile.retention import GroupProgress, Removal, RetentionPlan
from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.cleanup.kafka_retention import KafkaReaders
from smq_operator.cleanup.retention import MAX_SEGMENTS_PER_PASS, ConsistentState, IsHeld, StartedSegment, remove_of
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store


@dataclass(frozen=True, slots=True)
class TrimRequest:
    """``before`` is in microseconds of the leader's clock."""

    before: Micros
    preview: bool = False
    skip_unread: bool = False


@dataclass(frozen=True, slots=True)
class Trim:
    """What was removed, or would be, and why other segments stay that have older messages. ``more``: repeat it."""

    removals: list[Removal]
    kept: dict[str, str]
    more: bool = False


def trim_topic(
    store: Store,
    topic: Topic,
    request: TrimRequest,
    known: ConsistentState | None,
    groups: Sequence[GroupProgress],
    started: Collection[StartedSegment],
    clocks: ClockReading,
    retry_policy: RetryPolicy,
    is_held: IsHeld,
    readers: KafkaReaders | None = None,
) -> Trim:
    """Removes the segments that were sealed before a time from the index. Raises Unavailable; some may be removed.

    ``known``, ``clocks``, ``groups`` and ``readers`` are as in :func:`remove_expired`.
    """
    if known is None:
        raise Unavailable(f"{topic.name} is not trimmed: its segments are changing right now. Repeat the command")

    def raise_if_held(store: Store, topic: Topic, retry_policy: RetryPolicy) -> bool:
        if is_held(store, topic, retry_policy):
            raise Unavailable(
                f"{topic.name} is not trimmed: an atomic publish is unfinished, and nothing is removed until it is "
                "complete. Repeat the command then"
            )
        return False

    limited = replace(topic, spec=trim_limits(topic.spec, request, clocks.leader))
    plan = remove_of(
        store, limited, known, groups, started, clocks, retry_policy, raise_if_held, readers, preview=request.preview
    )
    because = f"trimmed: sealed before {_text(request.before)}"
    removals = [replace(removal, because=because) for removal in plan.removals]
    more = not request.preview and len(removals) == MAX_SEGMENTS_PER_PASS
    return Trim(removals, kept_segments(request, known.index.entries, known.layout, plan), more)


def trim_limits(spec: TopicSpec, request: TrimRequest, now: Micros) -> TopicSpec:
    """The topic's settings with the limits of this pass: a segment expires that was sealed before the time."""
    return replace(
        spec,
        retention_age=max(0, now - request.before),
        retention_bytes=None,
        retention_keeps_unread=spec.retention_keeps_unread and not request.skip_unread,
    )


def kept_segments(
    request: TrimRequest, entries: Sequence[SealedSegment], layout: Layout, plan: RetentionPlan
) -> dict[str, str]:
    """Why segments stay that may have messages of before the time."""
    removed = {removal.segment.name for removal in plan.removals}
    sealed = {entry.name for entry in entries}
    kept: dict[str, str] = {}
    for entry in entries:
        if entry.name in removed or entry.opened_at >= request.before or not entry.end:
            continue
        if entry.name in plan.retained:
            kept[entry.name] = f"not read to its end by {', '.join(plan.retained[entry.name])}"
        elif entry.sealed_at >= request.before:
            kept[entry.name] = f"sealed at {_text(entry.sealed_at)}, so it also has later messages"
        else:
            kept[entry.name] = "a segment before it stays, its successor still reads it, or the clocks are too close"
    for segment in layout.segments:
        if segment.name not in sealed and segment.opened_at < request.before:
            kept[segment.name] = "open: only sealed segments are removed"
    return kept


def _text(at: Micros) -> str:
    return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)).isoformat(timespec="seconds")[:-6] + "Z"
