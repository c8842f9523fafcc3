"""Sends at a fixed rate, and records the outcome of each message."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# How many messages may come before the stop is checked.
AT_ONCE = 1_000


def at_rate(rate: float, count: float = math.inf, stopped: Callable[[], bool] = lambda: False) -> Iterator[int]:
    """0 .. count - 1, ``rate`` a second, until ``stopped``; what is late comes at once: the rate holds on the whole."""
    start = time.perf_counter()
    done = 0
    while done < count and not stopped():
        due = min(count, done + AT_ONCE, int((time.perf_counter() - start) * rate) + 1)
        while done < due:
            yield done
            done += 1
        time.sleep(max(0.0, min(0.02, start + done / rate - time.perf_counter())))


def wait_for_go(path: str | None) -> None:
    """Waits for this file, which the harness makes when all processes are warm."""
    while path is not None and not Path(path).exists():
        time.sleep(0.05)


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p99, p99.9 and max of values in seconds, in milliseconds."""
    ranked = sorted(values)

    def at(share: float) -> float:
        return round(ranked[min(len(ranked) - 1, int(share * len(ranked)))] * 1e3, 3)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "max_ms": at(1.0)}


def longest_gaps(times: Sequence[float], events: Sequence[float]) -> list[float]:
    """For each event the longest gap between two neighbouring ``times`` from it to the next event, in seconds.

    A gap that begins before the event and ends after it counts, from the event on.
    """
    ranked = sorted(times)
    found = []
    for number, event in enumerate(events):
        until = events[number + 1] if number + 1 < len(events) else float("inf")
        longest, last = 0.0, event
        for at in ranked:
            if at < event:
                continue
            if at >= until:
                break
            longest, last = max(longest, at - last), at
        found.append(longest)
    return found
