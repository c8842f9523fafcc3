"""The acked messages that a sealed segment has lost, and how much of that is known.

The seal records what its sealer knew: the highest watermark that was reported. If the sealer cannot know that this is
all, the range is open-ended. What shows later that more was acked (a replica that was cut off, a position that a group
committed) raises the range. A range never shrinks, and an open-ended one stays so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LostRange:
    """The acked messages at the offsets ``first`` to ``upto - 1`` are gone.

    ``open_ended``: messages after them may have been acked and are gone, too. An open-ended range with
    ``first == upto`` is a possible loss: it is not known whether any message was lost.
    """

    first: int
    upto: int
    open_ended: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether at least one acked message is known to be lost."""
        return self.upto > self.first

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing: no message is known to be lost, and none can be."""
        return self.upto <= self.first and not self.open_ended

    def __str__(self) -> str:
        if not self.is_certain:
            return f"possibly offsets from {self.first} on"
        return f"offsets {self.first} to {'at least ' if self.open_ended else ''}{self.upto}"


def lost_range(end: int, recorded: LostRange | None, acked_upto: int) -> LostRange | None:
    """What a segment that was sealed at ``end`` has lost, if messages up to offset ``acked_upto`` were acked.

    ``recorded`` is what is known to be lost already. ``acked_upto`` up to ``end`` shows no loss. If nothing was
    recorded, the sealer did not know of the loss, so nobody knows how far it goes.
    """
    if acked_upto <= end:
        return recorded
    if recorded is None:
        return LostRange(end, acked_upto, open_ended=True)
    return LostRange(recorded.first, max(recorded.upto, acked_upto), recorded.open_ended)
