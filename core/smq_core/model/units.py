"""Sizes (``32Mi``), durations (``5s``) and times as manifests, flags and messages have them.

Everywhere else sizes are bytes and durations microseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import overload

UNLIMITED = "unlimited"

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_IEC = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZES = _BINARY | _DECIMAL
_TIMES = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}

# crds/topics.yaml has the same patterns, so that both accept the same manifests. At most three digits after the point,
# and only before a larger unit, keep every amount above 0; the limits let it fit in 63 bits.
SIZE_PATTERN = r"([0-9]+|[0-9]+(\.[0-9]{1,3})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi))"
DURATION_PATTERN = (
    r"([0-9]{1,5}(\.[0-9]{1,3})?d|[0-9]{1,6}(\.[0-9]{1,3})?h|[0-9]{1,8}(\.[0-9]{1,3})?m|[0-9]{1,9}(\.[0-9]{1,3})?s"
    r"|[0-9]{1,12}(\.[0-9]{1,3})?ms|[0-9]{1,15}us)+"
)
MAX_TEXT = 32
MAX_SIZE_BYTES = 10**18 - 1
MAX_DURATION_US = 100_000 * _TIMES["d"] - 1

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[a-z]+)+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]+)")


def parse_size(value: object) -> int:
    """Bytes of ``32Mi``, ``1G``, ``4096``. Raises ValueError that says what to write."""
    match = _SIZE.fullmatch(str(value)) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
    if not match:
        raise ValueError(f"must be a size such as 32Mi, not {value!r}")
    number, unit = match.groups()
    if unit not in _SIZES:
        raise ValueError(f"{value!r} has the unknown unit {unit!r}: use {', '.join(u for u in _SIZES if u)}")
    if len(str(value)) > MAX_TEXT or not re.fullmatch(SIZE_PATTERN, str(value)):
        raise ValueError(f"{value!r} is too long or too exact: use a size such as 32Mi or 1.5Gi")
    if (size := _whole(number, _SIZES[unit])) > MAX_SIZE_BYTES:
        raise ValueError(f"{value!r} is too large: use at most 999P")
    return size


def parse_duration(value: object) -> int:
    """Microseconds of ``5s``, ``24h``, ``1h30m``, ``500ms``. Raises ValueError that says what to write."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError(f"must be a duration with its unit, such as 5s or 24h, not {value!r}")
    parts = _DURATION_PART.findall(value)
    for _, unit in parts:
        if unit not in _TIMES:
            raise ValueError(f"{value!r} has the unknown unit {unit!r}: use {', '.join(reversed(_TIMES))}")
    total = sum(_whole(number, _TIMES[unit]) for number, unit in parts)
    if len(value) > MAX_TEXT or total > MAX_DURATION_US or not re.fullmatch(DURATION_PATTERN, value):
        raise ValueError(f"{value!r} is too long or too exact: use a duration such as 5s or 1.5h, at most 99999d")
    return total


@overload
def size_text(size: int) -> str: ...
@overload
def size_text(size: None) -> str: ...
def size_text(size: int | None) -> str:
    """The shortest exact text that :func:`parse_size` reads back; None is ``unlimited``."""
    if size is None:
        return UNLIMITED
    for unit, factor in reversed(_BINARY.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def duration_text(duration: int | None) -> str:
    """An exact text such as ``1h30m`` that :func:`parse_duration` reads back; None is ``unlimited``."""
    if duration is None:
        return UNLIMITED
    text = ""
    for unit, factor in _TIMES.items():
        count, duration = divmod(duration, factor)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def format_size(nbytes: float) -> str:
    """``33554432`` as ``32 MiB``, rounded to two digits: for messages and tables."""
    return format_scaled(nbytes, 1024, _IEC, " ")


def format_scaled(number: float, base: int, units: tuple[str, ...], space: str) -> str:
    """The number in the largest unit that leaves at least 1 of it, with one digit after the point below 10."""
    step = 0
    while number >= base * 0.9995 and step < len(units) - 1:
        number, step = number / base, step + 1
    digits = f"{number:.1f}" if step and number < 9.95 else f"{number:.0f}"
    return f"{digits.removesuffix('.0')}{space}{units[step]}"


def _whole(number: str, factor: int) -> int:
    """The amount, rounded down, and exactly: binary fractions of large units do not fit into a float."""
    whole, _, fraction = number.partition(".")
    return int(whole + fraction) * factor // int(10 ** len(fraction))


def format_time(at: datetime) -> str:
    """A time as RFC 3339, to the microsecond; in UTC, unless it has no zone."""
    when = at.astimezone(UTC) if at.tzinfo is not None else at
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")
