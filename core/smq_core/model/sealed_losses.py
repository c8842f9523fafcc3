"""Raises the lost ranges of sealed segments to what was acked."""

from __future__ import annotations

from dataclasses import replace

from smq_core.model.entities import SealedSegment
from smq_core.model.lost_range import LostRange, lost_range


def with_lost(entry: SealedSegment, lost: LostRange | None) -> SealedSegment:
    """The entry with this lost range."""
    if lost is None:
        return replace(entry, lost_from=None, lost_to=None, lost_open_ended=False)
    return replace(entry, lost_from=lost.first, lost_to=lost.upto, lost_open_ended=lost.open_ended)


def raise_loss(entry: SealedSegment, acked_upto: int) -> SealedSegment:
    """The entry with the loss that shows if messages up to this offset were acked; the same object if none shows."""
    lost = lost_range(entry.end, entry.lost, acked_upto)
    return entry if lost == entry.lost else with_lost(entry, lost)


def merge_loss(entry: SealedSegment, known: SealedSegment | None) -> SealedSegment:
    """The entry with the larger of two records of its loss, because an index that was read may be older."""
    if known is None or known.lost is None:
        return entry
    merged = raise_loss(entry, known.lost.upto)
    if known.lost.open_ended and not merged.lost_open_ended:
        merged = with_lost(merged, LostRange(known.lost.first, max(known.lost.upto, merged.lost_to or 0), True))
    return merged
