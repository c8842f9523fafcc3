"""The last effects and answers of a topic's reconciler, for people who want to know why it is in its state.

The story is bounded in events and in bytes. It is kept in memory only, so a new leader begins a new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from smq_core.model.entities import Layout, Micros, Replica, Segment
from smq_core.reconcile.answers import (
    Answer,
    ChangeRequested,
    EffectFailed,
    IndexAppended,
    LayoutRead,
    LayoutWritten,
    LossAccepted,
    ReplicaFenced,
    ReplicaOpened,
    Sealed,
    TailFlushed,
)
from smq_core.reconcile.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.sealing.seal_coordinator import RequestSeal, SealFromFiler

MAX_EVENTS = 1000
# Of all events of a topic in memory, with what Python needs for each. A usual event has 300 bytes.
MAX_BYTES = 384 * 1024
EVENT_OVERHEAD_BYTES = 240
MAX_DETAIL_LENGTH = 500
# An effect that fails is repeated, often with the same error. An event that equals one of the last ones is counted.
REPEATS_WITHIN = 20
# How many segments of a large layout an event names.
MAX_NAMED_SEGMENTS = 6


@dataclass(slots=True, kw_only=True)
class StoryEvent:
    """``kind`` is the type of an effect or answer. ``segment`` is empty if the event is not about one segment."""

    at: Micros
    kind: str
    segment: str
    detail: str
    times: int = 1
    last_at: Micros
    """The last of these times; ``at`` is the first."""

    def __str__(self) -> str:
        repeated = f" ({self.times} times until {self.last_at})" if self.times > 1 else ""
        return f"{self.kind} {self.detail}{repeated}".rstrip()

    @property
    def size_bytes(self) -> int:
        return EVENT_OVERHEAD_BYTES + len((self.kind + self.segment + self.detail).encode())


@dataclass
class TopicStory:
    """``events`` are the last ones, oldest first."""

    events: deque[StoryEvent] = field(default_factory=deque)
    size_bytes: int = 0

    def add(self, now: Micros, event: Effect | Answer, known: Layout | None) -> None:
        """Keeps an event, unless it only shows that nothing has changed. ``known`` is the layout before it."""
        if isinstance(event, ReadLayout) or (isinstance(event, LayoutRead) and _is_same(event.layout, known)):
            return
        kind, segment, detail = describe(event, known)
        detail = detail[:MAX_DETAIL_LENGTH]
        self.keep(StoryEvent(at=now, kind=kind, segment=segment, detail=detail, last_at=now))

    def keep(self, event: StoryEvent) -> None:
        """Adds or counts the event, and drops the oldest ones that are too many."""
        for other in islice(reversed(self.events), REPEATS_WITHIN):
            if (other.kind, other.segment, other.detail) == (event.kind, event.segment, event.detail):
                other.times, other.last_at = other.times + 1, event.at
                return
        self.events.append(event)
        self.size_bytes += event.size_bytes
        while len(self.events) > MAX_EVENTS or self.size_bytes > MAX_BYTES:
            self.size_bytes -= self.events.popleft().size_bytes


def describe(event: Effect | Answer, known: Layout | None) -> tuple[str, str, str]:
    """The kind of the event, its segment, and the rest in words."""
    kind = type(event).__name__
    match event:
        case PutLayout(layout):
            return kind, "", _changes(layout, known)
        case LayoutRead(layout):
            return kind, "", _changes(layout, known) if layout is not None else "there is none yet"
        case LayoutWritten(layout):
            return kind, "", f"version {layout.version}"
        case OpenReplica(segment, replica):
            return kind, segment.name, _place(replica)
        case FlushAhead(segment):
            return kind, segment.name, _place(segment.primary)
        case RequestSeal(name, replica, watermark, accept_incomplete):
            known_watermark = f", watermark {watermark}" if watermark is not None else ""
            incomplete = ", even from an incomplete journal" if accept_incomplete else ""
            return kind, name, f"{_place(replica)}{known_watermark}{incomplete}"
        case SealFromFiler(name, watermark):
            return kind, name, f"watermark {watermark if watermark is not None else 'unknown'}"
        case AppendIndex(entries):
            return kind, "", _some([entry.name for entry in entries])
        case IndexAppended(names):
            return kind, "", _some(names)
        case ReplicaOpened(name, incarnation) | ReplicaFenced(name, incarnation):
            replicas = known.segment(name).replicas if known is not None and name in known else ()
            found = next((it for it in replicas if it.incarnation == incarnation), None)
            return kind, name, _place(found) if found is not None else f"incarnation {incarnation}"
        case Sealed(outcome):
            lost = f", lost: {outcome.lost}" if outcome.lost is not None else ""
            return kind, outcome.segment, f"at offset {outcome.end}{lost}"
        case EffectFailed(effect, error):
            _, name, detail = describe(effect, known)
            cause = f"{type(error).__name__}: {error}"
            return f"{type(effect).__name__}Failed", name, f"{detail}: {cause}" if name else cause
        case ChangeRequested(change):
            return kind, "", f"{change.action} {_some(change.segments)}"
        case TailFlushed(name) | LossAccepted(name):
            return kind, name, ""
    return kind, "", ""


def _changes(layout: Layout, known: Layout | None) -> str:
    """The version, and the segments that are new, changed or gone."""
    before = {segment.name: segment for segment in known.segments} if known is not None else {}
    changed = [it for it in layout.segments if before.get(it.name) is not it and before.get(it.name) != it]
    parts = [_planned(segment) for segment in changed[:MAX_NAMED_SEGMENTS]]
    if len(changed) > len(parts):
        parts.append(f"{len(changed) - len(parts)} more")
    gone = [name for name in before if name not in layout]
    if gone:
        parts.append(f"gone: {_some(gone)}")
    if layout.deleted:
        parts.append("the topic is deleted")
    return f"version {layout.version}: {'; '.join(parts)}"


def _planned(segment: Segment) -> str:
    brokers = ", ".join(replica.broker for replica in segment.replicas)
    if not segment.successors:
        return f"{segment.name} {segment.phase.value} on {brokers}"
    accepted = ", its loss accepted" if segment.loss_accepted else ""
    reason = f" ({segment.sealed_because.value})" if segment.sealed_because is not None else ""
    return f"{segment.name} {segment.phase.value}{reason}{accepted}, then {_some(segment.successors)}"


def _place(replica: Replica) -> str:
    return f"{replica.broker}, incarnation {replica.incarnation}"


def _some(names: Sequence[str]) -> str:
    left = len(names) - MAX_NAMED_SEGMENTS
    return ", ".join(names[:MAX_NAMED_SEGMENTS]) + (f" and {left} more" if left > 0 else "")


def _is_same(layout: Layout | None, known: Layout | None) -> bool:
    return layout is not None and known is not None and layout.writer == known.writer
