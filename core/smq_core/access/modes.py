"""Whom a release lets in."""

from __future__ import annotations

from enum import StrEnum


class SecurityMode(StrEnum):
    """``permissive`` is on the way between the other two: it serves callers of both."""

    DISABLED = "disabled"
    """Everybody may do everything, in clear text."""
    PERMISSIVE = "permissive"
    """As ``required``, but a call in clear text without a token may do everything, too. Such calls are counted."""
    REQUIRED = "required"
    """Connections are encrypted, callers are known, and each has its rights."""

    @property
    def knows_callers(self) -> bool:
        return self is not SecurityMode.DISABLED
