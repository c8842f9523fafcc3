"""Rebuilds the layout of a topic whose document was lost, from index, chunk chains, brokers and their journals.

The range and the number in the name of a segment say who followed whom: of two segments of the same partition, the one
with the lower number came before. So the names give the whole DAG.

What nobody knows is found, too. A segment holds acked messages only if all its predecessors are sealed. So if no known
segment names an unknown one, its partitions have no unsealed segment that is known, and ``unknown`` says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from smq_core.model.entities import (
    Durability,
    Layout,
    Micros,
    Phase,
    Reason,
    Replica,
    SealedSegment,
    Segment,
    Topic,
    TopicSchema,
    number_of,
    range_of,
    segment_name,
)
from smq_core.model.interval_set import EMPTY, IntervalSet, contains
from smq_core.model.keyspace import KeyRange, covers_exactly
from smq_core.model.layout_transitions import validated
from smq_core.scaling.placement import Placer

# How many numbers new names leave out. A segment that nobody knows any more may have one of them.
SKIPPED_NUMBERS = 1000
# The replica of a segment whose replicas nobody knows.
UNKNOWN = Replica("unknown", "unknown", "unknown:0")


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """How far a chunk chain in the filer reaches."""

    end: int
    sealed: bool
    schema_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraces:
    """What is known of a topic without a layout.

    ``hosted`` has segments as brokers hold them, or have in journals. ``schemas`` are versions of the topic's schema
    that these have. ``chains`` has the segments with chunks, and ``named`` those that other documents name.
    """

    sealed: tuple[SealedSegment, ...] = ()
    removed: IntervalSet = EMPTY
    hosted: Mapping[str, Segment] = field(default_factory=dict)
    schemas: Mapping[int, TopicSchema] = field(default_factory=dict)
    chains: Mapping[str, ChainEnd] = field(default_factory=dict)
    named: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class RebuiltLayout:
    """``found`` and ``unknown`` are lines for people. What is unknown may have held messages that are lost with it."""

    layout: Layout
    found: tuple[str, ...]
    unknown: tuple[str, ...]


def rebuild_layout(topic: Topic, traces: TopicTraces, placer: Placer, *, now: Micros, writer: str) -> RebuiltLayout:
    """The layout, in which every segment that is not in the index is as it was found. The normal seals do the rest.

    Segments without a known replica are sealed from the filer. Partitions without a segment get a new one.
    Raises ValueError, with a message for the user, if the traces do not fit together.
    """
    return _Rebuilding(topic, traces, placer, now).layout(writer)


class _Rebuilding:
    def __init__(self, topic: Topic, traces: TopicTraces, placer: Placer, now: Micros) -> None:
        self._topic, self._traces, self._placer, self._now = topic, traces, placer, now
        self._indexed = {entry.name: entry for entry in traces.sealed}
        self._ring = KeyRange(0, topic.spec.partitions)
        self._found: list[str] = []
        self._unknown: list[str] = []
        living = {name for name in self._all_names() if self._lives(name)}
        self._ranges = {name: range_of(name) for name in (*self._indexed, *living)}
        numbers = [*map(number_of, self._ranges), *(stop - 1 for _, stop in traces.removed), -1]
        self._next_number = max(numbers) + 1
        self._segments = {name: self._segment(name) for name in sorted(living, key=number_of)}

    def layout(self, writer: str) -> RebuiltLayout:
        self._fill_gaps()
        self._add_sealed_siblings()
        segments = self._linked()
        schemas = self._schemas(segments)
        version = self._now  # higher than any count, because clients ignore a version that is lower than theirs
        layout = Layout(
            topic=self._topic.name,
            uid=self._topic.uid,
            partitions=self._topic.spec.partitions,
            version=version,
            next_number=self._next_number + SKIPPED_NUMBERS,
            segments=segments,
            writer=writer,
            schemas=schemas,
        )
        return RebuiltLayout(validated(layout), tuple(self._found), tuple(self._unknown))

    def _all_names(self) -> set[str]:
        traces = self._traces
        linked = [name for it in traces.sealed for name in (*it.predecessors, *it.successors)]
        linked += [name for it in traces.hosted.values() for name in it.predecessors]
        return {*traces.hosted, *traces.chains, *traces.named, *linked}

    def _lives(self, name: str) -> bool:
        """Whether the lost layout had it: neither the index nor the record of what retention removed does."""
        try:
            number, range_ = number_of(name), range_of(name)
        except ValueError:
            return False
        if name != segment_name(self._topic.name, range_, number) or range_.stop > self._ring.stop:
            return False
        return name not in self._indexed and not contains(self._traces.removed, number)

    def _segment(self, name: str) -> Segment:
        """The segment as it was found, without its place among the others."""
        stored, known = self._traces.chains.get(name), self._traces.hosted.get(name)
        end = stored.end if stored is not None else 0
        if known is not None:
            hosts = ", ".join(replica.broker for replica in known.replicas)
            self._found.append(f"{name}: hosted by {hosts}; {end} messages in the filer")
            return replace(known, phase=Phase.OPEN, successors=(), sealed_because=None)
        if stored is not None and stored.sealed:
            self._found.append(f"{name}: sealed at {end}, but not in the index")
        else:
            self._found.append(f"{name}: {end} messages in the filer, and no broker has it or its journal")
            self._unknown.append(f"{name}: acked messages from offset {end} on may be lost, because no broker has them")
        version = stored.schema_version if stored is not None else self._newest_version()
        return self._without_replicas(name, self._before(name), version)

    def _without_replicas(self, name: str, predecessors: tuple[str, ...], schema_version: int) -> Segment:
        return Segment(
            name=name,
            number=number_of(name),
            range=range_of(name),
            phase=Phase.OPEN,
            durability=Durability.REPLICATED,
            replicas=(UNKNOWN,),
            predecessors=predecessors,
            loss_accepted=True,
            opened_at=self._now,
            schema_version=schema_version,
        )

    def _before(self, name: str) -> tuple[str, ...]:
        """Its predecessors: of each partition, the last segment before it."""
        rest, found = [range_of(name)], []
        earlier = (other for other in self._ranges if number_of(other) < number_of(name))
        for other in sorted(earlier, key=number_of, reverse=True):
            range_ = self._ranges[other]
            if any(part.overlaps(range_) for part in rest):
                found.append(other)
                rest = _without(rest, range_)
        return tuple(reversed(found))

    def _followed(self) -> set[str]:
        return {name for segment in self._segments.values() for name in segment.predecessors}

    def _fill_gaps(self) -> None:
        """A new segment for partitions whose last segment is sealed or unknown."""
        followed, gaps = self._followed(), [self._ring]
        for name, segment in self._segments.items():
            stored = self._traces.chains.get(name)
            is_sealed = stored is not None and stored.sealed
            if name not in followed and not is_sealed:
                gaps = _without(gaps, segment.range)
        # None reaches beyond a segment that it waits for, so that segments without predecessors cover the ring.
        edges = {edge for it in self._segments.values() for edge in (it.range.start, it.range.stop)}
        split = [gap.split_at(sorted(edge for edge in edges if gap.start < edge < gap.stop)) for gap in gaps]
        for gap in chain.from_iterable(split):
            self._unknown.append(
                f"partitions {gap.start} to {gap.stop - 1}: no unsealed segment is known. If one was there, its "
                "brokers do not answer, and its messages are lost"
            )
            placed = self._placer.place(self._topic.spec.durability, self._topic.spec.replicas)
            if placed is None:
                raise ValueError(f"no broker is available to host partitions {gap.start} to {gap.stop - 1}: start one")
            number = self._next_number + SKIPPED_NUMBERS
            self._next_number += 1
            name = segment_name(self._topic.name, gap, number)
            self._ranges[name] = gap
            self._segments[name] = Segment(
                name=name,
                number=number,
                range=gap,
                phase=Phase.OPEN,
                durability=placed.durability,
                replicas=placed.replicas,
                predecessors=self._before(name),
                opened_because=Reason.FAILOVER,
                opened_at=self._now,
                schema_version=self._newest_version(),
            )
            self._found.append(f"{name}: new, for partitions {gap.start} to {gap.stop - 1}")

    def _add_sealed_siblings(self) -> None:
        """Segments of the index that were to leave the layout together with one that is not sealed yet."""
        while True:
            waiting = [it for it in self._segments.values() if any(name in self._segments for name in it.predecessors)]
            names = {name for it in waiting for name in it.predecessors if name in self._indexed}
            new = names - self._segments.keys()
            if not new:
                return
            for name in new:
                entry = self._indexed[name]
                self._segments[name] = self._without_replicas(name, entry.predecessors, entry.schema_version)

    def _linked(self) -> tuple[Segment, ...]:
        """The segments in the order of their numbers, with phases and successors."""
        ordered = sorted(self._segments.values(), key=lambda it: it.number)
        successors: dict[str, tuple[str, ...]] = {}
        for segment in ordered:
            for name in segment.predecessors:
                successors[name] = (*successors.get(name, ()), segment.name)
        linked = []
        for segment in ordered:
            after = successors.get(segment.name, ())
            waits = any(name in self._segments for name in segment.predecessors)
            phase = Phase.PENDING if waits else Phase.SEALING if after else Phase.OPEN
            because = Reason.FAILOVER if after else None
            linked.append(replace(segment, phase=phase, successors=after, sealed_because=because))
        if not covers_exactly((it.range for it in linked if not it.successors), self._ring):
            raise ValueError(
                "the segments that were found do not fit together: "
                + ", ".join(f"{it.name} follows {', '.join(it.predecessors) or 'none'}" for it in linked)
                + ". Restore the layout from a backup of the filer"
            )
        return tuple(linked)

    def _newest_version(self) -> int:
        traces = self._traces
        versions: Iterable[int] = (
            *(it.schema_version for it in traces.sealed),
            *(it.schema_version for it in traces.chains.values()),
            *traces.schemas,
        )
        return max(versions, default=0)

    def _schemas(self, segments: Iterable[Segment]) -> tuple[TopicSchema, ...]:
        columns = self._topic.spec.schema
        if not columns:
            return ()
        known = {0: TopicSchema(0, columns)} | dict(self._traces.schemas)
        newest = self._newest_version()
        needed = {newest, *(segment.schema_version for segment in segments)}
        if missing := sorted(needed - known.keys()):
            raise ValueError(
                f"no broker knows the columns of version {missing[0]} of the topic's schema: start the brokers that "
                "hosted its segments, or restore the layout from a backup of the filer"
            )
        before = {column.name for version, it in known.items() if version < newest for column in it.columns}
        dropped = tuple(sorted(before - {column.name for column in known[newest].columns}))
        known[newest] = replace(known[newest], dropped=dropped)
        return tuple(known[version] for version in sorted(needed))


def _without(ranges: Iterable[KeyRange], taken: KeyRange) -> list[KeyRange]:
    """What the ranges cover and ``taken`` does not."""
    rest = []
    for range_ in ranges:
        if not range_.overlaps(taken):
            rest.append(range_)
            continue
        if range_.start < taken.start:
            rest.append(KeyRange(range_.start, taken.start))
        if taken.stop < range_.stop:
            rest.append(KeyRange(taken.stop, range_.stop))
    return rest
