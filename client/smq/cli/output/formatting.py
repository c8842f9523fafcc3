"""Formats numbers, sizes, times and ages for display."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from smq_core.model.units import format_scaled, format_size

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMAL = ("", "k", "M", "G")


def count(number: float) -> str:
    """``1234567`` as ``1.2M``; below a thousand as it is."""
    return format_scaled(number, 1000, _DECIMAL, "")


def rate(messages: float, nbytes: float) -> str:
    """Messages and bytes per second, or a dash if both are 0."""
    return f"{count(messages)}/s  {format_size(nbytes)}/s" if messages or nbytes else "–"


def age(since: int, now: int) -> str:
    """The time from ``since`` to ``now`` (both microseconds), in the unit that fits: ``45s``, ``12m``, ``9d``."""
    seconds = max(0, now - since) // 1_000_000
    for limit, unit in ((120, 1), (7200, 60), (172_800, 3600)):
        if seconds < limit:
            return f"{seconds // unit}{ {1: 's', 60: 'm', 3600: 'h'}[unit] }"
    return f"{seconds // 86_400}d"


def clock(at: int) -> str:
    """The local time of day of a time in microseconds."""
    return datetime.fromtimestamp(at / 1e6, UTC).astimezone().strftime("%H:%M:%S")


def iso(at: int | datetime) -> str:
    """A time (or microseconds since 1970) as RFC 3339, to the microsecond; in UTC, unless it has no zone."""
    when = _EPOCH + timedelta(microseconds=at) if isinstance(at, int) else at
    if when.tzinfo is not None:
        when = when.astimezone(UTC)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def topic(full_name: str) -> str:
    """A topic's name as it is typed: without the default namespace."""
    return full_name.removeprefix("default/")


def plural(number: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
