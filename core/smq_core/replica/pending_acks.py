"""A primary's acks that are not due until the watermark covers their batches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from smq_core.replica.log_entries import Ack


@dataclass(frozen=True, slots=True)
class PendingAck:
    """An ack that is due once the watermark reaches ``end``."""

    end: int
    ack: Ack


class PendingAcks:
    """Batches are acked in the order of the log, and repeats of batches before those that are due with them."""

    def __init__(self) -> None:
        self._appended: deque[PendingAck] = deque()
        self._repeats: list[PendingAck] = []

    def add(self, end: int, ack: Ack) -> None:
        """The ack of a batch that was appended."""
        self._appended.append(PendingAck(end, ack))

    def add_repeat(self, end: int, ack: Ack) -> None:
        """The ack of a batch that was in the log already. Its producer waits for it on another stream."""
        self._repeats.append(PendingAck(end, ack))

    def has_due(self, watermark: int) -> bool:
        """Whether ``take_due`` would return any."""
        if self._appended and self._appended[0].end <= watermark:
            return True
        return bool(self._repeats) and any(pending.end <= watermark for pending in self._repeats)

    def take_due(self, watermark: int) -> list[Ack]:
        """The acks that are due at this watermark. Each is returned once."""
        due = [pending.ack for pending in self._repeats if pending.end <= watermark]
        if due:
            self._repeats = [pending for pending in self._repeats if pending.end > watermark]
        while self._appended and self._appended[0].end <= watermark:
            due.append(self._appended.popleft().ack)
        return due

    def clear(self) -> None:
        self._appended.clear()
        self._repeats.clear()
