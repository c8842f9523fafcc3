"""Quotas: how much an identity may write to a topic, and read of it, at each broker.

A quota slows streams down and refuses no message. Its state is that of one broker, as in Kafka. Times are seconds of a
clock that does not go back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from smq_core.access.rights import Right
from smq_core.errors import QuotaExceeded

# Stands for each identity that has no entry. Each of them has the quota for itself.
OTHERS = "*"
# How many seconds of a rate may be used at once, after as long a time without use.
BURST_SECONDS = 1.0

# What a stream has used up to one moment: bytes, messages.
Usage = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of one identity with one right, at each broker. None is no limit."""

    bytes_per_second: int | None = None
    messages_per_second: int | None = None
    streams: int | None = None

    @property
    def limits_rates(self) -> bool:
        return self.bytes_per_second is not None or self.messages_per_second is not None


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQuota:
    """One entry of a topic's ``spec.quotas``."""

    identity: str
    produce: Quota = NO_QUOTA
    consume: Quota = NO_QUOTA


def quota_of(quotas: Iterable[TopicQuota], identity: str, right: Right) -> Quota:
    """The quota of an identity. Its own entry counts as a whole, and that of all others only without one."""
    entries = {it.identity: it for it in quotas}
    entry = entries.get(identity) or entries.get(OTHERS)
    if entry is None or right is Right.ADMINISTER:
        return NO_QUOTA
    return entry.produce if right is Right.PRODUCE else entry.consume


class TokenBucket:
    """One rate. What is used before there are tokens for it is paid later, so any amount can be used at once.

    Whoever has used something goes on when that is paid. What is paid is never more than the burst and the rate times
    the time. Without a rate everything is paid at once.
    """

    def __init__(self) -> None:
        self.used = 0.0
        self._paid = 0.0
        self._paid_at = float("-inf")

    def use(self, amount: float, rate: float | None, now: float) -> None:
        self._pay(rate, now)  # first, because an idle time pays for no more than a burst
        self.used += amount

    def wait_seconds(self, used: float, rate: float | None, now: float) -> float:
        """For how long what was used up to there is not paid yet, with this rate."""
        self._pay(rate, now)
        return 0.0 if rate is None else max(0.0, (used - self._paid) / rate)

    def _pay(self, rate: float | None, now: float) -> None:
        if rate is None:
            self._paid = self.used
        else:
            self._paid = min(self._paid + rate * (now - self._paid_at), self.used + rate * BURST_SECONDS)
        self._paid_at = now


class QuotaMeter:
    """What one identity uses by one right to one topic at one broker. Replace ``quota`` when the leader does.

    A stream passes what ``open_stream`` and ``use`` return to ``wait_seconds``, and sends or takes nothing before that
    is 0. A new stream waits for what others have used, so that to connect again gains nothing.
    """

    def __init__(self, *, identity: str, topic: str, right: Right, quota: Quota) -> None:
        self.identity = identity
        self.topic = topic
        self.right = right
        self.quota = quota
        self.streams = 0
        self._bytes = TokenBucket()
        self._messages = TokenBucket()

    def open_stream(self) -> Usage:
        """Counts a stream until ``close_stream``. Raises QuotaExceeded."""
        limit = self.quota.streams
        if limit is not None and self.streams >= limit:
            raise QuotaExceeded(
                f"{self.identity} has used up its quota of streams to {self.right.value} {self.topic} at this broker, "
                f"which is {limit}: close some, or raise {self.right.value}.streams of its entry, or else of that of "
                f"{OTHERS!r}, in spec.quotas of the topic",
                identity=self.identity,
                topic=self.topic,
                limit=limit,
            )
        self.streams += 1
        return self._bytes.used, self._messages.used

    def close_stream(self) -> None:
        self.streams -= 1

    def use(self, nbytes: int, messages: int, now: float) -> Usage:
        self._bytes.use(nbytes, self.quota.bytes_per_second, now)
        self._messages.use(messages, self.quota.messages_per_second, now)
        return self._bytes.used, self._messages.used

    def wait_seconds(self, usage: Usage, now: float) -> float:
        return max(
            self._bytes.wait_seconds(usage[0], self.quota.bytes_per_second, now),
            self._messages.wait_seconds(usage[1], self.quota.messages_per_second, now),
        )
