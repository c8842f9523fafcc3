"""Structured logs: one JSON object a line, or coloured text on a terminal."""

from __future__ import annotations

import logging
import sys

import structlog

from smq_core.model.loss import Loss
from smq_storage.process.log_bounds import bound_fields
from smq_storage.process.log_names import NamedLoggerFactory


def configure(level: str = "info") -> None:
    """Logs go to standard output. ``level`` is debug, info, warning or error."""
    terminal = sys.stdout.isatty()
    last: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_logger_name,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            bound_fields,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper(), logging.INFO)),
        logger_factory=NamedLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )


def lost_fields(lost: Loss | None) -> dict[str, int | bool]:
    """A loss as the fields of a log line; none if nothing is lost."""
    if lost is None:
        return {}
    return {"lost_start": lost.start, "lost_stop": lost.stop, "lost_at_least": lost.at_least}
