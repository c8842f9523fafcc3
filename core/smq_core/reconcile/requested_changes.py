"""The changes of segments that users requested of one topic, until the layout carries them out or they are rejected."""

from __future__ import annotations

from dataclasses import dataclass, field

from smq_core.model.entities import Layout
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.seal_planner import RequestOutcome

MAX_REJECTED = 100


@dataclass(slots=True)
class RequestedChanges:
    """``waiting`` holds those that no PUT of the layout carries out yet, in the order of the requests."""

    waiting: list[SegmentChange] = field(default_factory=list)
    rejected: dict[SegmentChange, str] = field(default_factory=dict)
    """The last ones that became impossible, and why."""
    in_flight: list[SegmentChange] = field(default_factory=list)
    """Those that the layout of the current PUT carries out."""

    def submit(self, change: SegmentChange, layout: Layout, layout_in_flight: Layout | None) -> None:
        """Takes a request. Repeating one that is pending changes nothing.

        Raises ValueError, with a message for the user, if it is impossible or conflicts with another request.
        """
        if self.is_pending(change):
            return
        change.validate(layout)
        if layout_in_flight is not None:
            change.validate(layout_in_flight)
        if any(set(change.segments) & set(other.segments) for other in self.waiting):
            raise ValueError(f"another request for {', '.join(change.segments)} is pending already: wait for it")
        self.rejected.pop(change, None)
        self.waiting.append(change)

    def is_pending(self, change: SegmentChange) -> bool:
        """True from the request until the layout carries it out, or it is rejected."""
        return change in self.waiting or change in self.in_flight

    def is_requested(self, change: SegmentChange) -> bool:
        """True while a request of the same action for its first segment is pending."""
        pending = (it for it in (*self.waiting, *self.in_flight) if it.action == change.action)
        return any(change.segments[0] in it.segments for it in pending)

    def follow(self, outcome: RequestOutcome) -> list[SegmentChange]:
        """Takes what the planner made of those that waited. Returns the ones that the planned layout carries out."""
        carried_out = [it for it in self.waiting if it not in outcome.waiting and it not in outcome.rejected]
        self.waiting = outcome.waiting
        self.rejected |= outcome.rejected
        while len(self.rejected) > MAX_REJECTED:
            del self.rejected[next(iter(self.rejected))]
        return carried_out

    def put_failed(self) -> None:
        """The changes of the current PUT wait again."""
        self.waiting, self.in_flight = self.in_flight + self.waiting, []
