"""The acked messages that a segment has lost, and how much of that is known.

The seal records what its sealer knew: the highest watermark that was reported. If the sealer cannot know that this is
all, the loss is ``at_least``. What shows later that more was acked (a replica that was cut off, a position that a group
committed) raises the loss. A loss never shrinks, and one that is ``at_least`` stays so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    """The messages at the offsets ``start`` to ``stop - 1`` are gone.

    ``at_least``: messages from ``stop`` on may be gone, too. If ``stop`` then equals ``start``, the loss is only
    possible: it is not known whether any message is gone.
    """

    start: int
    stop: int
    at_least: bool = False

    @classmethod
    def from_offset(cls, start: int, stop: int | None) -> Loss:
        """Everything up to ``stop`` is gone; None if nobody knows where that ends."""
        return cls(start, start, at_least=True) if stop is None else cls(start, stop)

    @property
    def is_certain(self) -> bool:
        """Whether at least one message is known to be gone."""
        return self.stop > self.start

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing: no message is known to be gone, and none can be."""
        return self.stop <= self.start and not self.at_least

    def __str__(self) -> str:
        if not self.is_certain:
            return f"possibly offsets from {self.start} on"
        return f"offsets {self.start} to {'at least ' if self.at_least else ''}{self.stop}"


def loss_beyond(end: int, recorded: Loss | None, acked_upto: int) -> Loss | None:
    """What a segment that was sealed at ``end`` has lost, if messages up to offset ``acked_upto`` were acked.

    ``recorded`` is what is known to be lost already. ``acked_upto`` up to ``end`` shows no loss. If nothing was
    recorded, the sealer did not know of the loss, so nobody knows how far it goes.
    """
    if acked_upto <= end:
        return recorded
    if recorded is None:
        return Loss(end, acked_upto, at_least=True)
    return Loss(recorded.start, max(recorded.stop, acked_upto), recorded.at_least)
