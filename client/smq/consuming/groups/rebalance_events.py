"""Reports to a member's program, when it polls, which segments it was assigned, which were revoked, and which ended."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from smq.consuming.consumer_options import OnRebalance, OnSegmentEnd
from smq_storage.process.locks import requires_lock


class RebalanceEvents:
    """What was not reported to the program yet, in order. Guarded by ``changed``: heartbeats add what polls take."""

    def __init__(
        self,
        changed: threading.Condition,
        on_assigned: OnRebalance | None,
        on_revoked: OnRebalance | None,
        on_segment_end: OnSegmentEnd | None = None,
    ) -> None:
        self._changed = changed
        self._on_segment_end = on_segment_end
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._events: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._held: set[str] = set()
        """The segments that it holds, once everything is reported."""

    @property
    def pending(self) -> bool:
        """Whether there is anything to report. May be read without the lock."""
        return bool(self._events)

    @property
    @requires_lock("_changed")
    def revocation_pending(self) -> bool:
        """Whether a revoked segment is not reported yet, which it may want to commit before another member gets it."""
        return any(call is self._on_revoked for call, _ in self._events)

    @requires_lock("_changed")
    def assigned(self, segments: Iterable[str]) -> None:
        """The member reads these from now on."""
        new = frozenset(segments) - self._held
        self._held |= new
        self._add(self._on_assigned, new)

    @requires_lock("_changed")
    def revoked(self, segments: Iterable[str]) -> None:
        """Others are to read these."""
        gone = frozenset(segments) & self._held
        self._held -= gone
        self._add(self._on_revoked, gone)

    @requires_lock("_changed")
    def awaits_commit(self, segment: str, end: int) -> None:
        """Every message of the segment was returned, and the group waits for the commit of its end."""
        if self._on_segment_end is not None:
            self._events.append((self._on_segment_end, (segment, end)))

    @requires_lock("_changed")
    def ended(self, segment: str) -> None:
        """The segment was read to its end, or retention removed it. The program learns that by its successors."""
        self._held.discard(segment)

    @requires_lock("_changed")
    def revoke_all(self) -> None:
        """The member leaves the group."""
        self.revoked(frozenset(self._held))

    @requires_lock("_changed")
    def next(self) -> Callable[[], object] | None:
        """Takes the next call, which is to be made without a lock."""
        if not self._events:
            return None
        call, arguments = self._events.popleft()
        return lambda: call(*arguments)

    def _add(self, call: OnRebalance | None, segments: frozenset[str]) -> None:
        if call is not None and segments:
            self._events.append((call, (segments,)))
