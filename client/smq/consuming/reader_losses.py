"""What one reader has lost; each offset is reported once."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace

from smq_core.errors import DataLost
from smq_core.model.loss import Loss

log = logging.getLogger(__name__)


class ReaderLosses:
    """The losses that a reader knows, and those that were not reported to its program yet. Not safe from threads."""

    def __init__(self) -> None:
        self._known: dict[str, list[Loss]] = {}
        self._unreported: deque[DataLost] = deque()

    def ignore(self, segment: str, loss: Loss) -> None:
        """This loss is known to the program already."""
        self._known.setdefault(segment, []).append(loss)

    def record(self, segment: str, loss: Loss, file: str = "") -> bool:
        """Records what is not known of this loss yet. False if that is nothing. ``file`` alone had the messages."""
        known = self._known.setdefault(segment, [])
        new = _beyond(loss, known)
        if new is None:
            return False
        known.append(loss)
        log.warning("messages of %s are lost: %s", segment, new)
        self._unreported.append(data_lost(segment, new, file))
        return True

    @property
    def pending(self) -> bool:
        """Whether there is a loss that was not reported to the program yet."""
        return bool(self._unreported)

    def take(self) -> DataLost | None:
        """The next loss that was not reported to the program yet."""
        return self._unreported.popleft() if self._unreported else None


def _beyond(loss: Loss, known: list[Loss]) -> Loss | None:
    """The part of a loss that is not known; a loss grows at its end only."""
    covering = [it for it in known if it.start <= loss.start]
    if not covering:
        return loss
    upto = max(it.stop for it in covering)
    if loss.stop > upto:
        return replace(loss, start=max(loss.start, upto))
    return Loss(upto, upto, True) if loss.at_least and not any(it.at_least for it in covering) else None


def data_lost(segment: str, loss: Loss, file: str = "") -> DataLost:
    """The error for lost messages of the segment."""
    advice = 'Poll again to continue after them, or use on_loss="skip" to skip such messages silently'
    if not loss.is_certain:
        message = (
            f"messages of {segment} from offset {loss.start} on may be lost: retention removed the segment before they "
            "were read, or all its replicas ended, and nobody knows how far it went"
        )
    else:
        more = ", and possibly more after them," if loss.at_least else ""
        message = f"messages {loss.start}..{loss.stop - 1} of {segment}{more} are gone: {_cause(file)}"
    return DataLost(
        f"{message}. {advice}", segment=segment, start=loss.start, stop=loss.stop, at_least=loss.at_least, path=file
    )


def _cause(file: str) -> str:
    if file:
        return f"their file {file} was deleted or altered"
    return "retention removed them before they were read, or all replicas of the segment were lost"


def loss_for_reader(position: int, lost: Loss | None) -> Loss | None:
    """The loss to report to a reader that has read everything below ``position``; ``lost`` is the segment's.

    The segment's loss may have fewer messages than the reader has read. Those are part of the same loss.
    """
    if lost is None or lost.is_empty:
        return None
    return replace(lost, stop=max(lost.stop, position))
