"""Transitions of a topic's layout, each a pure function from one layout to the next.

The invariant, true of every layout these functions return: the open and sealing segments cover the ring exactly.

* ``create`` makes the first segments.
* ``plan`` turns segments to ``sealing`` and adds their successors as ``pending``. The successors have the newest
  version of the topic's schema, which may enter the layout in the same step.
* ``activate`` takes sealed segments out, with versions of the schema that only they had, and turns their successors to
  ``open``.
* ``accept_losses`` records that an administrator lets seals go on without their replicas.
* ``mark_deleted`` makes the last layout of a deleted topic.

A pending segment can be planned away too (its broker died before it opened): it stays ``pending``, with its own
successors, and turns to ``sealing`` in the activation that would have opened it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.common_fields import fields_of
from smq_core.model.entities import (
    Column,
    Durability,
    Layout,
    Micros,
    Phase,
    Reason,
    Replica,
    SealedSegment,
    Segment,
    SegmentEntry,
    TopicSchema,
    segment_name,
)
from smq_core.model.keyspace import KeyRange, covers_exactly, merge_ranges


@dataclass(frozen=True, slots=True)
class Successor:
    """A segment to be created: its range and its replicas."""

    range: KeyRange
    replicas: tuple[Replica, ...]
    durability: Durability


@dataclass(frozen=True, slots=True)
class SealPlan:
    """One decision: seal these segments, for this reason; these successors cover the same partitions."""

    segments: tuple[str, ...]
    reason: Reason
    successors: tuple[Successor, ...]
    because: str = ""


def create(
    topic: str,
    uid: str,
    partitions: int,
    parts: Sequence[Successor],
    *,
    columns: tuple[Column, ...] = (),
    now: Micros,
    writer: str,
) -> Layout:
    """The first layout of a topic, with ``columns`` as version 0 of its schema, if it has one.

    Raises ValueError when the parts do not cover the ring.
    """
    empty = Layout(topic=topic, uid=uid, partitions=partitions, schemas=(TopicSchema(0, columns),) if columns else ())
    segments = _new_segments(empty, 0, parts, Phase.OPEN, (), Reason.CREATE, now)
    return validated(replace(empty, version=1, next_number=len(segments), segments=segments, writer=writer))


def plan(
    layout: Layout,
    plans: Sequence[SealPlan],
    *,
    schemas: tuple[TopicSchema, ...] = (),
    now: Micros,
    writer: str,
) -> Layout:
    """Applies several decisions in one step. ``schemas``, if any, are the layout's versions of the schema from now on.

    Raises ValueError when a plan names a segment that is not there or already has successors, or when its
    successors do not cover its partitions exactly, or when the history drops or changes a version.
    """
    if schemas:
        if schemas[: len(layout.schemas)] != layout.schemas:
            raise ValueError(f"the schema of {layout.topic} can only get a further version")
        layout = replace(layout, schemas=schemas)
    segments = list(layout.segments)
    places = {segment.name: i for i, segment in enumerate(segments)}
    number = layout.next_number
    for seal in plans:
        olds = [segments[places[layout.segment(name).name]] for name in seal.segments]
        if any(old.successors for old in olds):
            raise ValueError("already planned to be sealed: " + ", ".join(seal.segments))
        whole = merge_ranges(old.range for old in olds)
        if not covers_exactly((successor.range for successor in seal.successors), whole):
            raise ValueError(f"the successors do not cover {whole} exactly")
        made = _new_segments(layout, number, seal.successors, Phase.PENDING, seal.segments, seal.reason, now)
        number += len(made)
        names = tuple(segment.name for segment in made)
        for old in olds:
            segments[places[old.name]] = replace(
                old,
                phase=Phase.SEALING if old.phase is Phase.OPEN else old.phase,
                successors=names,
                sealed_because=seal.reason,
            )
        segments.extend(made)
    return validated(
        replace(layout, version=layout.version + 1, next_number=number, segments=tuple(segments), writer=writer)
    )


def activatable(layout: Layout, sealed: Iterable[str]) -> set[str]:
    """Which of the sealed segments can leave the layout now.

    A segment leaves together with the other predecessors of its successors (a merge), because the ring must stay
    covered; and never before its own predecessors have left. In a layout that is older than the seal it has no
    successors yet, and stays.
    """
    done = {name for name in sealed if name in layout and layout.segment(name).successors}
    while True:
        stay = {
            name
            for name in done
            if any(p in layout for p in layout.segment(name).predecessors)
            or any(
                predecessor in layout and predecessor not in done
                for successor in layout.segment(name).successors
                for predecessor in layout.segment(successor).predecessors
            )
        }
        if not stay:
            return done
        done -= stay


def activate(layout: Layout, sealed: Iterable[str], *, writer: str) -> Layout:
    """Takes the sealed segments that can leave out of the layout; successors without predecessors left open."""
    gone = activatable(layout, sealed)
    segments = []
    for segment in layout.segments:
        if segment.name in gone:
            continue
        opens = segment.phase is Phase.PENDING and any(name in gone for name in segment.predecessors)
        if opens:
            segment = replace(segment, phase=Phase.SEALING if segment.successors else Phase.OPEN)
        segments.append(segment)
    schemas = _needed_schemas(layout.schemas, segments)
    return validated(
        replace(layout, version=layout.version + 1, segments=tuple(segments), schemas=schemas, writer=writer)
    )


def accept_losses(layout: Layout, watermarks: Mapping[str, int | None], *, writer: str) -> Layout:
    """Marks these segments, with their known watermarks, so that any later leader seals them without their replicas."""
    segments = tuple(
        replace(s, loss_accepted=True, known_watermark=watermarks[s.name]) if s.name in watermarks else s
        for s in layout.segments
    )
    return validated(replace(layout, version=layout.version + 1, segments=segments, writer=writer))


def mark_deleted(layout: Layout, *, writer: str) -> Layout:
    """The last layout of a deleted topic. A concurrent PUT of another leader fails; a leader that reads it stops."""
    return replace(layout, deleted=True, version=layout.version + 1, writer=writer)


def validated(layout: Layout) -> Layout:
    """The layout itself. Raises ValueError when open and sealing segments do not cover the ring exactly."""
    accepting = [s.range for s in layout.segments if s.phase in (Phase.OPEN, Phase.SEALING)]
    if not covers_exactly(accepting, layout.ring):
        raise ValueError(f"open and sealing segments do not cover {layout.ring}: {sorted(accepting)}")
    return layout


def _needed_schemas(schemas: tuple[TopicSchema, ...], segments: Iterable[Segment]) -> tuple[TopicSchema, ...]:
    """The newest version, and those of the segments. Nothing else needs one: files of sealed segments have columns."""
    used = {segment.schema_version for segment in segments}
    return tuple(schema for schema in schemas if schema.version in used or schema is schemas[-1])


def _new_segments(
    layout: Layout,
    first: int,
    parts: Sequence[Successor],
    phase: Phase,
    predecessors: tuple[str, ...],
    reason: Reason,
    now: Micros,
) -> tuple[Segment, ...]:
    return tuple(
        Segment(
            name=segment_name(layout.topic, part.range, first + i),
            number=first + i,
            range=part.range,
            phase=phase,
            durability=part.durability,
            replicas=part.replicas,
            predecessors=tuple(name for name in predecessors if layout.segment(name).range.overlaps(part.range)),
            opened_because=reason,
            opened_at=now,
            schema_version=layout.schemas[-1].version if layout.schemas else 0,
        )
        for i, part in enumerate(parts)
    )


def sealed_entry(segment: Segment, outcome: SealOutcome, now: Micros) -> SealedSegment:
    """The index entry of a segment that leaves the layout."""
    return SealedSegment(
        **fields_of(SegmentEntry, segment),
        end=outcome.end,
        sealed_because=segment.sealed_because or Reason.MANUAL,
        sealed_at=now,
        lost=outcome.lost,
        brokers=tuple(replica.broker for replica in segment.replicas),
    )
