"""Memory is returned once after a burst, when the broker was idle for a whole period, and never under traffic."""

from collections.abc import Callable

from smq_broker.memory.trimmer import IDLE_MAX_BYTES, IDLE_PERIOD_SECONDS, MemoryTrimmer


def trimmed_seconds(bytes_received: Callable[[float], float], seconds: float) -> list[float]:
    now = 0.0
    trimmer, found = MemoryTrimmer(lambda: int(bytes_received(now))), []
    while now < seconds:
        if trimmer.should_trim(now):
            found.append(now)
        now += 0.5
    return found


def test_memory_is_trimmed_once_after_a_burst_and_an_idle_period():
    first, second = 0.5 * IDLE_PERIOD_SECONDS, 5.5 * IDLE_PERIOD_SECONDS

    def bursts(now: float) -> float:
        return IDLE_MAX_BYTES * ((now > first) + (now > second))

    found = trimmed_seconds(bursts, 10 * IDLE_PERIOD_SECONDS)
    assert len(found) == 2
    assert all(
        IDLE_PERIOD_SECONDS <= at - burst <= 2 * IDLE_PERIOD_SECONDS
        for at, burst in zip(found, (first, second), strict=True)
    )


def test_memory_is_never_trimmed_under_traffic_or_without_a_burst():
    assert trimmed_seconds(lambda now: IDLE_MAX_BYTES * now / IDLE_PERIOD_SECONDS * 1.1, 5 * IDLE_PERIOD_SECONDS) == []
    assert trimmed_seconds(lambda now: 0, 5 * IDLE_PERIOD_SECONDS) == []


def test_little_traffic_counts_as_idle():
    assert (
        len(
            trimmed_seconds(
                lambda now: IDLE_MAX_BYTES * (now > 1) + IDLE_MAX_BYTES * now / IDLE_PERIOD_SECONDS * 0.9,
                5 * IDLE_PERIOD_SECONDS,
            )
        )
        == 1
    )
