"""Incarnation ids of brokers in Pods: ``<uid of the Pod>.<start time in seconds, hex>.<random>``.

The id names the Pod, so any leader can derive from the API server's state of the Pod whether the incarnation still
exists, even if the broker never registered with that leader. Other incarnation ids are opaque.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERN = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9a-f]{1,10})\.([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class PodIncarnation:
    """A parsed incarnation id. ``at`` is in seconds since the Unix epoch, by the clock of the Pod's node."""

    pod: str
    at: int


def format_incarnation(pod: str, at: int, random: str) -> str:
    """Formats the id of a process in the Pod with this uid. ``random`` is 8 hex digits. Raises ValueError."""
    name = f"{pod.lower()}.{at:x}.{random}"
    if _PATTERN.fullmatch(name) is None:
        raise ValueError(f"{pod!r} is not the uid of a Pod; pass metadata.uid")
    return name


def parse_incarnation(incarnation: str) -> PodIncarnation | None:
    """Parses an incarnation id. Returns None if it has another format."""
    match = _PATTERN.fullmatch(incarnation)
    return PodIncarnation(match[1], int(match[2], 16)) if match else None
