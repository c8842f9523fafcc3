"""Callers in clear text at a permissive broker: they may do everything, and are recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from smq_broker.access.callers import Caller, OpenCaller
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.log_limiter import LogLimiter

# How often a stream is recorded while it goes on.
RECHECK_SECONDS = 60.0
# A program may call in clear text for weeks.
LOG_INTERVAL_SECONDS = 60.0

log = structlog.get_logger(__name__)


class AnonymousCaller(OpenCaller):
    """``record`` gets the name of the call."""

    def __init__(self, record: Callable[[str], None]) -> None:
        self.check_at = time.monotonic() + RECHECK_SECONDS
        self._record = record
        self._call = ""

    def admit(self, call: str) -> None:
        self._call = call
        self._record(call)

    def recheck(self) -> None:
        self._record(self._call)
        self.check_at = time.monotonic() + RECHECK_SECONDS


class AnonymousAccess:
    """``client_of`` returns where a call comes from, by what Flight says of that."""

    def __init__(self, broker_metrics: BrokerMetrics, client_of: Callable[[str], str]) -> None:
        self._counter = broker_metrics.open_calls
        self._client_of = client_of
        self._limiter = LogLimiter(LOG_INTERVAL_SECONDS)

    def caller(self, context: Any) -> Caller:
        return AnonymousCaller(partial(self.record, self._client_of(str(context.peer()))))

    def record(self, peer: str, call: str) -> None:
        """A call from this ``host:port``."""
        self._counter.labels(call).inc()
        left_out = self._limiter.admit((peer.rpartition(":")[0], call))
        if left_out is not None:
            message = "it has no certificate: it may not in mode required"
            log.warning("access.open_call", call=call, peer=peer, message=message, left_out=left_out)
