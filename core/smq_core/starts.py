"""Incarnations that say which start of which Pod they are: ``<uid of the Pod>.<start, seconds, hex>.<random>``.

With them the API server's word on a Pod is its word on an incarnation, for any leader, also for one that never heard
of it before. Every other incarnation is opaque.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9a-f]{1,10})\.([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class Start:
    """``at`` is in seconds since the Unix epoch, by the clock of the machine that it ran on."""

    pod: str
    at: int


def name_start(pod: str, at: int, random: str) -> str:
    """The incarnation of a process in the Pod of that uid; ``random`` are 8 hex digits. Raises ValueError."""
    name = f"{pod.lower()}.{at:x}.{random}"
    if _FORM.fullmatch(name) is None:
        raise ValueError(f"{pod!r} is no uid of a Pod: give metadata.uid")
    return name


def start_of(incarnation: str) -> Start | None:
    """What an incarnation says of itself; None for one that was named otherwise."""
    match = _FORM.fullmatch(incarnation)
    return Start(match[1], int(match[2], 16)) if match else None
