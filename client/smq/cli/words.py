"""Numbers, times and ages as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_DECIMAL = ("", "k", "M", "G")


def size(nbytes: float) -> str:
    """``33554432`` as ``32 MiB``."""
    return _scaled(nbytes, 1024, _BINARY, " ")


def count(number: float) -> str:
    """``1234567`` as ``1.2M``; below a thousand as it is."""
    return _scaled(number, 1000, _DECIMAL, "")


def rate(messages: float, nbytes: float) -> str:
    """Messages and bytes per second, or a dash when nothing flows."""
    return f"{count(messages)}/s  {size(nbytes)}/s" if messages or nbytes else "–"


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


def iso(at: int) -> str:
    """A time in microseconds as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def topic(full_name: str) -> str:
    """A topic's name as it is typed: without the default namespace."""
    return full_name.removeprefix("default/")


def plural(number: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _scaled(number: float, base: int, units: tuple[str, ...], space: str) -> str:
    step = 0
    while number >= base * 0.9995 and step < len(units) - 1:
        number, step = number / base, step + 1
    digits = f"{number:.1f}" if step and number < 9.95 else f"{number:.0f}"
    return f"{digits.removesuffix('.0')}{space}{units[step]}"
