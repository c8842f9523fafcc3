"""What callers did and what they were refused, in the log and as numbers."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from enum import Enum

import structlog

log = structlog.get_logger(__name__)

# A client that lacks a right repeats its call; one line in this time says the same.
LOG_INTERVAL_SECONDS = 10.0
# A program that calls without a token may do so for weeks.
OPEN_LOG_INTERVAL_SECONDS = 60.0
# Beyond that the oldest are forgotten, and may be logged again.
MAX_REMEMBERED = 10_000


class DenialReason(Enum):
    """The values of the label ``reason`` of the metric."""

    NO_TOKEN = "no_token"
    INVALID_TOKEN = "invalid_token"
    FORBIDDEN = "forbidden"


class AccessAudit:
    """``denied`` counts by reason, ``open_calls`` by call. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.denied: Counter[DenialReason] = Counter()
        self.open_calls: Counter[str] = Counter()
        self._clock = clock
        self._logged: OrderedDict[tuple[str, str], float] = OrderedDict()

    def record_denial(self, reason: DenialReason, *, identity: str, access: str, peer: str, message: str) -> None:
        """``access`` is the right that is missing, or the call of somebody who is not known."""
        self.denied[reason] += 1
        # Without the name, which the caller chooses: with another one for each call it would fill the log.
        if self._is_due((identity, access.partition('"')[0]), LOG_INTERVAL_SECONDS):
            line = {"identity": identity, "access": access, "peer": peer, "message": message}
            log.warning("access.denied", reason=reason.value, **line)

    def record_open_call(self, call: str, peer: str) -> None:
        """A call without a token in a permissive release. A stream is recorded again whenever it is checked."""
        self.open_calls[call] += 1
        if self._is_due((peer.rpartition(":")[0], call), OPEN_LOG_INTERVAL_SECONDS):
            log.warning(
                "access.open_call", call=call, peer=peer, message="it has no token: it may not in mode required"
            )

    def record_call(self, call: str, *, identity: str, about: str, peer: str, outcome: str) -> None:
        """A call that changes something. ``outcome`` is ``OK``, or the gRPC status of its error."""
        log.info("access.audit", call=call, identity=identity, about=about, peer=peer, outcome=outcome)

    def _is_due(self, key: tuple[str, str], interval_seconds: float) -> bool:
        """Whether a line about this is to be logged now."""
        now = self._clock()
        if now - self._logged.get(key, now - interval_seconds) < interval_seconds:
            return False
        self._logged[key] = now
        self._logged.move_to_end(key)
        if len(self._logged) > MAX_REMEMBERED:
            self._logged.popitem(last=False)
        return True
