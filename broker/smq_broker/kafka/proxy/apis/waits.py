"""How long a request lets a broker wait before it answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from smq_broker.kafka.protocol.messages import FETCH

JOIN_GROUP, SYNC_GROUP = 11, 14
# A member waits for the leader of its group, which computes the assignment.
SYNC_SECONDS = 300.0
# Whatever a client says.
MAX_WAIT_SECONDS = 600.0


def wait_seconds(api_key: int, body: Any) -> float:
    if api_key == FETCH:
        wait = _seconds(body.max_wait)
    elif api_key == JOIN_GROUP:
        wait = _seconds(getattr(body, "rebalance_timeout", body.session_timeout))
    elif api_key == SYNC_GROUP:
        wait = SYNC_SECONDS
    elif hasattr(body, "timeout_ms"):
        wait = body.timeout_ms / 1000
    else:
        wait = _seconds(getattr(body, "timeout", timedelta(0)))
    return min(max(0.0, wait), MAX_WAIT_SECONDS)


def _seconds(time: timedelta) -> float:
    return time.total_seconds()
