"""Which segments a member's program is told of."""

from __future__ import annotations

import threading

from smq.consuming.groups.rebalance_events import RebalanceEvents
from smq_storage.process.locks import make_rlock


def test_only_segments_that_the_member_still_holds_are_reported_as_revoked() -> None:
    revoked: list[frozenset[str]] = []
    changed = threading.Condition(make_rlock())
    events = RebalanceEvents(changed, None, lambda segments: revoked.append(frozenset(segments)))
    with changed:
        events.assigned(["ended", "given up", "kept"])
        events.ended("ended")
        for _ in range(2):
            events.revoked(["given up", "of another member"])
        events.revoke_all()
        while (call := events.next()) is not None:
            call()
    assert revoked == [{"given up"}, {"kept"}]
