"""Keeps typer from checking values that cannot be wrong, because its checks import pydantic.

That takes longer than most commands, and typer checks also each option that is not on the command line.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import typer.core

# Typer does not document it. Without it everything works, but takes longer.
_make_check = getattr(typer.core, "build_runtime_param", None)


def defer_checks() -> None:
    """From now on this process makes typer's check of a parameter only for a value that needs it."""
    if _make_check is not None:
        typer.core.build_runtime_param = DeferredCheck  # type: ignore[assignment]


class DeferredCheck:
    """In place of what ``build_runtime_param`` returns."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind = self._descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if kind is str and type(value) is str:
            return value
        if isinstance(kind, type) and issubclass(kind, Enum):
            for choice in kind:
                if value in (choice, choice.value):
                    return choice
        assert _make_check is not None
        return _make_check(self._descriptor).coerce(value, param=param, ctx=ctx)
