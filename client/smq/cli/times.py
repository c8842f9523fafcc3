"""Times as a person types them: ISO 8601, or how long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from smq_core.errors import InvalidRequest
from smq_core.model.units import parse_duration


def parse_time(text: str, option: str, now: datetime | None = None) -> datetime:
    """``2024-05-01T12:00`` (in UTC, if it has no zone) or ``-90m``. Raises InvalidRequest."""
    if text.startswith("-"):
        try:
            return (now or datetime.now(UTC)) - timedelta(microseconds=parse_duration(text[1:]))
        except (InvalidRequest, ValueError, OverflowError):
            raise _invalid(text, option) from None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _invalid(text, option) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _invalid(text: str, option: str) -> InvalidRequest:
    return InvalidRequest(f"{option} takes a time such as 2024-05-01T12:00:00Z or -1h (an hour ago), not {text!r}")


def parse_positions(texts: list[str], option: str) -> dict[str, int]:
    """``SEGMENT:OFFSET``, several separated by commas or in several texts. Raises InvalidRequest."""
    found: dict[str, int] = {}
    for part in (part for text in texts for part in text.split(",")):
        segment, colon, offset = part.strip().rpartition(":")
        if not colon or not segment or not offset.isdecimal():
            raise InvalidRequest(f"{option} takes SEGMENT:OFFSET, such as flights-0-1024-0:500, not {part!r}")
        if segment in found:
            raise InvalidRequest(f"{option} names {segment} twice")
        found[segment] = int(offset)
    return found
