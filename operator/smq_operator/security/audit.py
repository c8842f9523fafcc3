"""What callers did and what they were refused, in the log and as numbers."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from enum import Enum

import structlog

log = structlog.get_logger(__name__)

# A client that lacks a right repeats its call; one line in this time says the same.
LOG_INTERVAL_SECONDS = 10.0
# Beyond that the oldest are forgotten, and may be logged again.
MAX_REMEMBERED = 10_000


class DenialReason(Enum):
    """The values of the label ``reason`` of the metric."""

    NO_TOKEN = "no_token"
    INVALID_TOKEN = "invalid_token"
    FORBIDDEN = "forbidden"


class AccessAudit:
    """``denied`` counts by reason. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.denied: Counter[DenialReason] = Counter()
        self._clock = clock
        self._logged: OrderedDict[tuple[str, str], float] = OrderedDict()

    def record_denial(self, reason: DenialReason, *, identity: str, access: str, peer: str, message: str) -> None:
        """``access`` is the right that is missing, or the call of somebody who is not known."""
        self.denied[reason] += 1
        now, key = self._clock(), (identity, access)
        if now - self._logged.get(key, now - LOG_INTERVAL_SECONDS) < LOG_INTERVAL_SECONDS:
            return
        self._logged[key] = now
        self._logged.move_to_end(key)
        if len(self._logged) > MAX_REMEMBERED:
            self._logged.popitem(last=False)
        log.warning("access.denied", reason=reason.value, identity=identity, access=access, peer=peer, message=message)

    def record_call(self, call: str, *, identity: str, about: str, peer: str, outcome: str) -> None:
        """A call that changes something. ``outcome`` is ``OK``, or the gRPC status of its error."""
        log.info("access.audit", call=call, identity=identity, about=about, peer=peer, outcome=outcome)
