"""Adds the product's log lines to the story of a history."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol

import structlog
from greenlet import getcurrent

from support.sim.engine.virtual_threads import VirtualThread


class LogSink(Protocol):
    def log(self, who: str, event: MutableMapping[str, Any]) -> None:
        """Receives one line of a process: that of the virtual thread, or else a leader."""


@contextmanager
def logs_to(history: LogSink) -> Iterator[None]:
    """Writes the log lines to the history's story."""

    def take(logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        thread = getcurrent()
        is_virtual = isinstance(thread, VirtualThread)
        if not (is_virtual and thread.exits):
            history.log(thread.process.name if is_virtual else "leader", event)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[take],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
