"""What the seals of one topic need next: tails written ahead, seals in order, their cleanup, and the index entries.

A seal waits for the seals of its predecessors, and for a moment also for its successors, so that writers continue
without a pause. The functions change the records only to note what was requested or seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from smq_core.model import layout_transitions as layouts
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import MILLISECOND, SECOND, Layout, Liveness, Micros, SealedSegment, Segment
from smq_core.model.partition_offsets import SealedPartitions
from smq_core.model.sealed_losses import raise_loss
from smq_core.reconcile.effects import Effect, FlushAhead
from smq_core.reconcile.segment_record import SegmentRecords
from smq_core.scaling.placement import BrokerView
from smq_core.sealing.seal_coordinator import SealBlocked, SealCoordinator

# How long a seal waits until its successors are open and tails are written.
SUCCESSOR_HEAD_START: Micros = SECOND
# The pause after a seal before its cleanup. Its writers continue meanwhile, and need the same processes.
RELEASE_DELAY: Micros = 150 * MILLISECOND

# Maps an incarnation to its liveness.
LivenessLookup = Callable[[str], Liveness]


def seal_effects(
    layout: Layout, records: SegmentRecords, now: Micros, brokers: Mapping[str, BrokerView]
) -> list[Effect]:
    """The effects that move the seals of this layout on."""
    liveness = _liveness_lookup(brokers)
    to_seal = [segment for segment in layout.segments if segment.successors]
    effects = _flush_ahead(to_seal, records, now, liveness)
    for segment in to_seal:
        record = records.of(segment.name)
        sealing = record.sealing
        assert sealing is not None
        if sealing.outcome is not None:
            if record.sealed_at is None:
                record.sealed_at = now
            if now - record.sealed_at >= RELEASE_DELAY:
                effects += sealing.release_requests(liveness)
            continue
        if not _predecessors_sealed(segment, layout, records):
            continue
        if not _may_start_seal(segment, layout, records, now, liveness):
            continue
        if segment.loss_accepted:
            sealing.accept_loss()
        sealing.known_watermark = _known_watermark(segment, records)
        step = sealing.next_step(now, liveness)
        if step is not None and not isinstance(step, SealBlocked):
            effects.append(step)
    return effects


def _liveness_lookup(brokers: Mapping[str, BrokerView]) -> LivenessLookup:
    """Returns a function that maps an incarnation to its liveness; an unknown one is suspect."""

    def of(incarnation: str) -> Liveness:
        broker = brokers.get(incarnation)
        return broker.liveness if broker is not None else Liveness.SUSPECT

    return of


def _flush_ahead(
    to_seal: Sequence[Segment], records: SegmentRecords, now: Micros, liveness: LivenessLookup
) -> list[Effect]:
    """Begins the seals that the layout plans, and makes their primaries write their tails."""
    effects: list[Effect] = []
    for segment in to_seal:
        record = records.of(segment.name)
        if record.sealing is None:
            record.sealing, record.seal_started_at = SealCoordinator(segment), now
            if liveness(segment.primary.incarnation) is Liveness.ALIVE:
                record.flushing_ahead = True
                effects.append(FlushAhead(segment))
    return effects


def _predecessors_sealed(segment: Segment, layout: Layout, records: SegmentRecords) -> bool:
    """False while a predecessor accepts batches.

    A segment that never opened could be sealed at once. But its successors open when they see its seal, and must not
    do so while a predecessor of it still accepts batches.
    """
    return all(records.outcome(p) is not None for p in segment.predecessors if p in layout)


def _may_start_seal(
    segment: Segment, layout: Layout, records: SegmentRecords, now: Micros, liveness: LivenessLookup
) -> bool:
    """True once successors are open and tails are written, so that writers continue without a pause.

    Segments that are merged wait for each other's tails, because all their writers pause until the last segment is
    sealed. ``SUCCESSOR_HEAD_START`` limits the wait.
    """
    if now - records.of(segment.name).seal_started_at >= SUCCESSOR_HEAD_START:
        return True
    successors = [layout.segment(name) for name in segment.successors]
    merged = (records.known(name) for successor in successors for name in successor.predecessors)
    if any(record is not None and record.flushing_ahead for record in merged):
        return False
    for successor in successors:
        if successor.successors:
            continue
        for replica in successor.replicas:
            opened = records.has_opened(successor.name, replica.incarnation)
            if not opened and liveness(replica.incarnation) is Liveness.ALIVE:
                return False
    return True


def entries_to_index(layout: Layout, records: SegmentRecords, now: Micros) -> tuple[SealedSegment, ...]:
    """The sealed segments that may leave the layout once the index has them, in the order of their numbers."""
    releasable = {
        name for name, record in records if record.sealed_at is not None and now - record.sealed_at >= RELEASE_DELAY
    }
    leaving = [name for name in layouts.activatable(layout, releasable) if not records.of(name).indexed]
    outcomes = records.outcomes()
    entries = [_sealed_entry(layout.segment(name), outcomes[name], records, now) for name in leaving]
    return tuple(sorted(entries, key=lambda e: e.number))


def sealed_partitions(entries: Iterable[SealedSegment], records: SegmentRecords) -> dict[str, SealedPartitions]:
    """What these segments leave of Kafka's offsets, by name."""
    outcomes = records.outcomes()
    return {
        entry.name: SealedPartitions(range=entry.range, offsets=outcomes[entry.name].partitions, lost=entry.lost)
        for entry in entries
    }


def _sealed_entry(segment: Segment, outcome: SealOutcome, records: SegmentRecords, now: Micros) -> SealedSegment:
    """The entry of a segment, with the loss that this leader knows: one that knew less may have sealed it."""
    entry = layouts.sealed_entry(segment, outcome, now)
    return raise_loss(entry, _known_watermark(segment, records) or 0)


def _known_watermark(segment: Segment, records: SegmentRecords) -> int | None:
    """The highest watermark that this leader or the layout knows."""
    record = records.known(segment.name)
    known = (record.watermark if record is not None else None, segment.known_watermark)
    return max((it for it in known if it is not None), default=None)
