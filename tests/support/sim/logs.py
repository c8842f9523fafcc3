"""What the operator's own code logs in a history becomes a part of its story."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol

import structlog


class Teller(Protocol):
    def log(self, leader: str, event: MutableMapping[str, Any]) -> None:
        """Takes one line."""


@contextmanager
def logs_to(history: Teller) -> Iterator[None]:
    """The operator's log lines become lines of the history's story."""

    def take(logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        history.log("leader", event)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[take], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)
