"""Raises the losses of sealed segments to what was acked."""

from __future__ import annotations

from dataclasses import replace

from smq_core.model.entities import SealedSegment
from smq_core.model.loss import loss_beyond


def raise_loss(entry: SealedSegment, acked_upto: int) -> SealedSegment:
    """The entry with the loss that shows if messages up to this offset were acked; the same object if none shows."""
    lost = loss_beyond(entry.end, entry.lost, acked_upto)
    return entry if lost == entry.lost else replace(entry, lost=lost)


def merge_loss(entry: SealedSegment, known: SealedSegment | None) -> SealedSegment:
    """The entry with the larger of two records of its loss, because an index that was read may be older."""
    if known is None or known.lost is None:
        return entry
    merged = raise_loss(entry, known.lost.stop)
    if known.lost.at_least and (merged.lost is None or not merged.lost.at_least):
        stop = known.lost.stop if merged.lost is None else max(known.lost.stop, merged.lost.stop)
        merged = replace(merged, lost=replace(known.lost, stop=stop))
    return merged
