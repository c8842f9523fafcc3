"""Reading flags that have a unit."""

from __future__ import annotations

import argparse

from smq_core.errors import InvalidRequest
from smq_storage.units import parse_duration


def duration_of(flag: str, given: argparse.Namespace) -> int:
    """Microseconds of a flag such as ``--node-grace``. Raises InvalidRequest that names it and says what to write."""
    try:
        return parse_duration(getattr(given, flag[2:].replace("-", "_")))
    except ValueError as error:
        raise InvalidRequest(f"{flag}: {error}") from None
