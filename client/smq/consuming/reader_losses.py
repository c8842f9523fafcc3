"""What one reader has lost; each offset is reported once."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace

from smq.consuming.fetching.prefetch_buffer import FetchedLoss
from smq_core.errors import DataLost
from smq_core.model.lost_range import LostRange

log = logging.getLogger(__name__)


class ReaderLosses:
    """The losses that a reader knows, and those that were not reported to its program yet. Not safe from threads."""

    def __init__(self) -> None:
        self._known: dict[str, list[FetchedLoss]] = {}
        self._unreported: deque[DataLost] = deque()

    def ignore(self, segment: str, loss: FetchedLoss) -> None:
        """This loss is known to the program already."""
        self._known.setdefault(segment, []).append(loss)

    def record(self, segment: str, loss: FetchedLoss) -> bool:
        """Records what is not known of this loss yet. False if that is nothing."""
        known = self._known.setdefault(segment, [])
        new = _beyond(loss, known)
        if new is None:
            return False
        known.append(loss)
        more = " or more" if new.at_least else ""
        upto = f"{new.start}..{new.stop}" if new.stop is not None else f"from {new.start} on"
        log.warning("messages of %s are lost: %s%s", segment, upto, more)
        self._unreported.append(data_lost(segment, new))
        return True

    @property
    def pending(self) -> bool:
        """Whether there is a loss that was not reported to the program yet."""
        return bool(self._unreported)

    def take(self) -> DataLost | None:
        """The next loss that was not reported to the program yet."""
        return self._unreported.popleft() if self._unreported else None


def _beyond(loss: FetchedLoss, known: list[FetchedLoss]) -> FetchedLoss | None:
    """The part of a loss that is not known; a range grows at its end only."""
    covering = [it for it in known if it.start <= loss.start]
    if any(it.stop is None for it in covering) or (covering and loss.stop is None):
        return None
    if not covering or loss.stop is None:
        return loss
    upto = max(it.stop or 0 for it in covering)
    open_ended = any(it.at_least for it in covering)
    if loss.stop > upto:
        return replace(loss, start=max(loss.start, upto))
    return FetchedLoss(upto, upto, True) if loss.at_least and not open_ended else None


def data_lost(segment: str, loss: FetchedLoss) -> DataLost:
    """The error for lost messages of the segment."""
    start, stop = loss.start, loss.stop
    advice = 'Poll again to continue after them, or use on_loss="skip" to skip such messages silently'
    if stop is not None and stop <= start:
        message = (
            f"messages of {segment} from offset {start} on may be lost: all its replicas ended, and nobody knows "
            "whether they had acked messages that were not in the filer yet"
        )
    else:
        upto = f"{start}..{stop - 1}" if stop is not None else f"from {start} on"
        more = ", and possibly more after them," if loss.at_least else ""
        message = f"messages {upto} of {segment}{more} are gone: {_cause(loss)}"
    return DataLost(
        f"{message}. {advice}", segment=segment, start=start, stop=stop, at_least=loss.at_least, path=loss.file
    )


def _cause(loss: FetchedLoss) -> str:
    if loss.file:
        return f"their file {loss.file} was deleted or altered"
    return "retention removed them before they were read, or all replicas of the segment were lost"


def loss_for_reader(position: int, lost: LostRange | None) -> FetchedLoss | None:
    """The loss to report to a reader that has read everything below ``position``; ``lost`` is the segment's.

    The segment's range may have fewer messages than the reader has read. Those are part of the same loss.
    """
    if lost is None or lost.is_empty:
        return None
    return FetchedLoss(lost.first, max(lost.upto, position), lost.open_ended)
