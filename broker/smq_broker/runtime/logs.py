"""Structured logs on standard output: one JSON object per line, or text on a terminal."""

from __future__ import annotations

import logging
import sys

import structlog

from smq_storage.process.log_bounds import bound_fields
from smq_storage.process.log_names import NamedLoggerFactory


def configure(level: str, form: str, *, broker: str) -> None:
    """``form`` is json, console, or auto (console on a terminal). Every line carries the broker's name."""
    console = form == "console" or (form == "auto" and sys.stdout.isatty())
    last: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    )

    def name_broker(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event.setdefault("broker", broker)
        return event

    structlog.configure(
        processors=[
            name_broker,
            structlog.stdlib.add_logger_name,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            bound_fields,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=NamedLoggerFactory(sys.stdout),
    )
