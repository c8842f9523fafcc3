"""Times of the wire, in microseconds since 1970, as the admin API shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(micros: int) -> datetime | None:
    """The time in UTC; None for 0, which says that it is not known."""
    return instant_of(micros) if micros else None


def instant_of(micros: int) -> datetime:
    """The time in UTC."""
    return _EPOCH + timedelta(microseconds=micros)
