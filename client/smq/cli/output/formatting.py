"""Formats numbers, sizes, times and ages for display."""

from __future__ import annotations

from datetime import datetime

from smq_core.model.units import format_scaled, format_size

_DECIMAL = ("", "k", "M", "G")


def count(number: float) -> str:
    """``1234567`` as ``1.2M``; below a thousand as it is."""
    return format_scaled(number, 1000, _DECIMAL, "")


def rate(messages: float, nbytes: float) -> str:
    """Messages and bytes per second, or a dash if both are 0."""
    return f"{count(messages)}/s  {format_size(nbytes)}/s" if messages or nbytes else "–"


def age(since: datetime | None, now: datetime) -> str:
    """The time from ``since`` to ``now``; a dash if it is not known."""
    return "–" if since is None else span((now - since).total_seconds())


def span(exact_seconds: float) -> str:
    """A time in the unit that fits: ``45s``, ``12m``, ``9d``."""
    seconds = max(0, int(exact_seconds))
    for limit, unit in ((120, 1), (7200, 60), (172_800, 3600)):
        if seconds < limit:
            return f"{seconds // unit}{ {1: 's', 60: 'm', 3600: 'h'}[unit] }"
    return f"{seconds // 86_400}d"


def clock(at: datetime) -> str:
    """The local time of day."""
    return at.astimezone().strftime("%H:%M:%S")


def topic(full_name: str) -> str:
    """A topic's name as it is typed: without the default namespace."""
    return full_name.removeprefix("default/")


def plural(number: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
