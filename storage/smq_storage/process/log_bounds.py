"""Bounds the fields of a log line: whatever a stranger sends, a line stays short and moves no cursor of a terminal."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from smq_core.model.names import bounded

MAX_TRACEBACK_CHARACTERS = 16_000
# Of a field that is a list. The leader logs the segments of a decision, of which there are rarely more.
MAX_ITEMS = 200


def bound_fields(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A structlog processor, for the place before the renderer."""
    for name, value in event.items():
        event[name] = bounded(value, MAX_TRACEBACK_CHARACTERS) if name == "exception" else _bounded(value)
    return event


def _bounded(value: object) -> object:
    if isinstance(value, str):
        return bounded(value)
    if isinstance(value, Mapping):
        return {_bounded(key): _bounded(it) for key, it in list(value.items())[:MAX_ITEMS]}
    if isinstance(value, (list, tuple)):
        return [_bounded(it) for it in value[:MAX_ITEMS]]
    return value
