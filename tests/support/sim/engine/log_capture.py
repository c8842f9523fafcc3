"""Adds the operator's log lines to the story of a history."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol

import structlog


class LogSink(Protocol):
    def log(self, leader: str, event: MutableMapping[str, Any]) -> None:
        """Receives one line."""


@contextmanager
def logs_to(history: LogSink) -> Iterator[None]:
    """Writes the operator's log lines to the history's story."""

    def take(logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        history.log("leader", event)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[take], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)
