"""What comes back to a topic's reconciler: the outcomes of its effects, reports of brokers, and users' requests.

``TopicReconciler.handle`` takes each of them, in any order, and late ones, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.effects import Effect


@dataclass(frozen=True, slots=True)
class LayoutRead:
    """The filer's layout and its etag, both None if there is no layout yet."""

    layout: Layout | None
    etag: str | None


@dataclass(frozen=True, slots=True)
class LayoutWritten:
    """The filer has this layout."""

    layout: Layout
    etag: str


@dataclass(frozen=True, slots=True)
class ReplicaOpened:
    """This incarnation hosts the segment."""

    segment: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class ReplicaFenced:
    """This incarnation fenced the segment by itself, because it cannot serve it. The segment must move elsewhere."""

    segment: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class TailFlushed:
    """The primary has written the segment's tail ahead of the seal."""

    segment: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """The seal chunk exists."""

    outcome: SealOutcome


@dataclass(frozen=True, slots=True)
class IndexAppended:
    """The index of sealed segments has these."""

    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """The effect raised this error. What it has done is unknown, unless the error says so."""

    effect: Effect
    error: Exception


@dataclass(frozen=True, slots=True)
class ChangeRequested:
    """A user requests this change. Repeating one that is pending changes nothing."""

    change: SegmentChange


@dataclass(frozen=True, slots=True)
class LossAccepted:
    """An administrator lets the blocked seal of this segment go on, once the layout records it for later leaders."""

    segment: str


Answer = (
    LayoutRead
    | LayoutWritten
    | ReplicaOpened
    | ReplicaFenced
    | TailFlushed
    | Sealed
    | IndexAppended
    | EffectFailed
    | ChangeRequested
    | LossAccepted
)
