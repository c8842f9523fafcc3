"""What a sealed segment has lost: acked messages beyond its end.

The seal records what the leader knew: the highest watermark that was reported to it. A replica that was cut off may
have acked more until it found the seal, so a range grows when such a replica is heard of again. It never shrinks.
"""

from __future__ import annotations

from dataclasses import replace

from smq_core.model.entities import SealedSegment

LostOffsets = tuple[int, int]
"""The first lost offset, and the one after the last."""


def lost_range(end: int, recorded: LostOffsets | None, watermark: int) -> LostOffsets | None:
    """What a segment that was sealed at ``end`` has lost, if a replica of it had this watermark.

    ``recorded`` is what is known to be lost already. A watermark up to ``end`` shows no loss.
    """
    if watermark <= end:
        return recorded
    start, stop = recorded if recorded is not None else (end, end)
    return start, max(stop, watermark)


def raise_loss(entry: SealedSegment, watermark: int) -> SealedSegment:
    """The entry with the loss that this watermark of a replica shows; the same object if it shows no more."""
    recorded = (entry.lost_from, entry.lost_to) if entry.lost_from is not None and entry.lost_to is not None else None
    lost = lost_range(entry.end, recorded, watermark)
    if lost is None or lost == recorded:
        return entry
    return replace(entry, lost_from=lost[0], lost_to=lost[1])
