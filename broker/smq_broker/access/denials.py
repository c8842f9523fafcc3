"""What happens when a caller is refused: a line in the log, and a count."""

from __future__ import annotations

from typing import TypeVar

import structlog

from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.log_limiter import LogLimiter
from smq_core.errors import GrantMissing, SmqError
from smq_core.model.names import shown

E = TypeVar("E", bound=SmqError)

log = structlog.get_logger(__name__)


class Denials:
    """Safe from many threads."""

    def __init__(self, broker_metrics: BrokerMetrics) -> None:
        self._counter = broker_metrics.access_denied
        self._limiter = LogLimiter()

    def record(self, who: str, call: str, error: E) -> E:
        """Returns the error. One line in ten seconds is logged for each caller and call.

        It is not one for each topic too, because callers choose the names in their requests.
        """
        self._counter.labels(error.code).inc()
        left_out = self._limiter.admit((who, call))
        if left_out is not None:
            # A client that has not presented its grant yet does so and tries again.
            line = log.info if isinstance(error, GrantMissing) else log.warning
            line("access.denied", who=shown(who), call=call, code=error.code, error=error.message, left_out=left_out)
        return error
