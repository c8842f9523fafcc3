"""A quota over any schedule: no more than a burst and the rate times the time, and nobody waits for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.access.quotas import BURST_SECONDS, Quota, QuotaMeter, Usage
from smq_core.access.rights import Right

RATE = 100


@dataclass
class Stream:
    """Takes what it wants as soon as the quota lets it, as a lane does."""

    usage: Usage
    waits_until: float = 0.0


def meter(quota: Quota) -> QuotaMeter:
    return QuotaMeter(identity="ada", topic="travel/flights", right=Right.PRODUCE, quota=quota)


# A pause before, the stream, and how much it takes; far more than a burst, too.
STEPS = st.lists(
    st.tuples(st.floats(0, 10), st.integers(0, 3), st.integers(0, 20 * RATE), st.booleans()), min_size=1, max_size=40
)


@pytest.mark.parametrize("quota", [Quota(bytes_per_second=RATE), Quota(messages_per_second=RATE)])
@given(steps=STEPS)
def test_what_is_paid_is_bounded_and_everybody_goes_on(quota: Quota, steps: list[tuple[float, int, int, bool]]) -> None:
    limited = meter(quota)
    streams = [Stream(limited.open_stream()) for _ in range(4)]
    now, taken = 0.0, 0
    for pause, number, amount, connects_again in steps:
        now += pause
        if connects_again:
            limited.close_stream()
            streams[number] = Stream(limited.open_stream())
        stream = streams[number]
        now += limited.wait_seconds(stream.usage, now)
        assert limited.wait_seconds(stream.usage, now) < 1e-6, "who has waited goes on"
        # What the streams have taken before is paid, apart from the last frame of each of the others.
        unpaid = sum(other.waits_until > now for other in streams)
        stream.usage = limited.use(amount, amount, now)
        taken += amount
        assert taken - amount <= RATE * (now + BURST_SECONDS) + unpaid * 20 * RATE + 1e-6
        wait = limited.wait_seconds(stream.usage, now)
        assert wait <= taken / RATE, "and never waits for longer than all that was taken needs"
        stream.waits_until = now + wait
    assert limited.streams == 4


@given(amount=st.integers(2 * RATE, 10**12))
def test_an_entry_that_is_larger_than_the_burst_goes_through(amount: int) -> None:
    limited = meter(Quota(bytes_per_second=RATE))
    assert limited.wait_seconds(limited.open_stream(), 0.0) == 0
    usage = limited.use(amount, 1, 0.0)
    wait = limited.wait_seconds(usage, 0.0)
    assert wait == pytest.approx(amount / RATE - BURST_SECONDS)
    assert limited.wait_seconds(usage, wait) == pytest.approx(0, abs=1e-3)


@given(idle=st.floats(1, 1e9))
def test_an_idle_time_allows_one_burst(idle: float) -> None:
    limited = meter(Quota(bytes_per_second=RATE))
    limited.use(RATE, 1, 0.0)
    assert limited.wait_seconds(limited.use(RATE, 1, idle), idle) == 0
    assert limited.wait_seconds(limited.use(RATE, 1, idle), idle) == pytest.approx(BURST_SECONDS)
