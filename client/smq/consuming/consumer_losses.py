"""What is lost for one consumer, and what of it the program has yet to learn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from smq.consuming.groups.group_losses import GroupLosses
from smq.consuming.reader_losses import ReaderLosses
from smq_core.model.loss import Loss
from smq_proto.v1 import groups_pb2
from smq_proto.wire import loss_from_pb
from smq_storage.process.locks import requires_lock


class ConsumerLosses:
    """Guarded by ``changed``, which is notified of each new loss. With ``skips`` the program gets no errors of them."""

    def __init__(self, changed: threading.Condition, *, in_group: bool, skips: bool) -> None:
        self._changed = changed
        self._skips = skips
        self._reader = ReaderLosses()
        self._group = GroupLosses() if in_group else None

    @property
    def pending(self) -> bool:
        """Whether there is a loss that was not reported to the program yet."""
        return self._reader.pending

    @property
    def has_group_losses(self) -> bool:
        """Whether the leader has said what the group has lost."""
        return self._group is not None and self._group.received

    @property
    def to_confirm(self) -> dict[str, int]:
        """What the group's next commit confirms: the ends of what was reported, by segment."""
        return self._group.to_confirm if self._group is not None else {}

    @requires_lock("_changed")
    def confirmed(self, ends: Mapping[str, int]) -> None:
        """A commit has confirmed these."""
        if self._group is not None:
            self._group.confirmed(ends)

    def delay_messages(self) -> bool:
        """Whether a new member still has to learn what its group has lost, which comes before the next messages."""
        return self._group is not None and self._group.delay_messages(time.monotonic())

    @requires_lock("_changed")
    def record(self, segment: str, loss: Loss, file: str = "") -> None:
        """Records what of a loss is not recorded yet. ``file`` alone had the messages."""
        if self._reader.record(segment, loss, file):
            self._changed.notify_all()

    @requires_lock("_changed")
    def record_of_group(self, reply: groups_pb2.GroupPositions, position: Callable[[str], int]) -> None:
        """Records what the group has lost, except what it knew at its last commit.

        That is what retention removed before the group read it, and what was lost with all replicas of segments that
        the group has passed. ``position`` is how far this member has read a segment.
        """
        assert self._group is not None
        for it in reply.lost:
            loss = loss_from_pb(it.loss)
            unread = replace(loss, start=max(loss.start, position(it.segment)))
            if it.acknowledged and not self._group.received:
                self._reader.ignore(it.segment, loss)
            elif not unread.is_empty:
                self.record(it.segment, unread)
        for it in reply.lost_with_replicas:
            self.record(it.segment, loss_from_pb(it.loss))
        self._group.received = True
        self._changed.notify_all()

    @requires_lock("_changed")
    def raise_next(self) -> None:
        """Raises the next loss that was not reported to the program. If it skips losses, all count as reported."""
        while (loss := self._reader.take()) is not None:
            if self._group is not None:
                self._group.reported(loss)
            if not self._skips:
                raise loss
