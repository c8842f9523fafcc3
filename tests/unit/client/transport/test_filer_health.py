"""Readers that wait for the filer say so in the log: soon, then less and less often, and when it answers again."""

from __future__ import annotations

import logging

import pytest

from smq.transport import filer_health
from smq.transport.filer_health import FORGET_SECONDS, FilerHealth
from smq_core.errors import StoreUnavailable

AWAY = StoreUnavailable("no clear answer from s3://bucket (http://filer:8333)")


class Bench:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 1000.0
        self.health = FilerHealth(lambda: self.now)
        self._caplog = caplog
        caplog.set_level(logging.INFO, filer_health.__name__)

    def fail_until(self, seconds: float) -> list[float]:
        """A failure each second from 0 to then. Returns when a warning was logged."""
        warned, began = [], self.now
        while self.now <= began + seconds:
            self.health.failed(AWAY, since=self.now)
            warned += [self.now - began for _ in self.logged(logging.WARNING)]
            self.now += 1
        return warned

    def logged(self, level: int) -> list[str]:
        found = [record.getMessage() for record in self._caplog.records if record.levelno == level]
        self._caplog.clear()
        return found


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    return Bench(caplog)


def test_warnings_come_less_and_less_often(bench: Bench) -> None:
    assert bench.fail_until(3600) == [2, 12, 32, 72, 152, 312, 632, 1232, 1832, 2432, 3032]


def test_a_warning_names_the_filer_and_how_long_it_has_been_away(bench: Bench) -> None:
    bench.health.failed(AWAY, since=bench.now - 5)
    assert bench.logged(logging.WARNING) == [
        "reads from the filer have failed for 5 s and are repeated: "
        "no clear answer from s3://bucket (http://filer:8333)"
    ]


def test_a_failure_that_passes_at_once_is_not_logged(bench: Bench) -> None:
    bench.health.failed(AWAY, since=bench.now)
    bench.health.answered()
    bench.now += 5
    bench.health.failed(AWAY, since=bench.now)
    assert bench.logged(logging.WARNING) == [] and bench.logged(logging.INFO) == []


def test_the_filer_that_is_back_is_logged_once(bench: Bench) -> None:
    bench.fail_until(9)
    for _ in range(2):
        bench.health.answered()
    assert bench.logged(logging.INFO) == ["the filer answers again after 10 s"]
    assert bench.fail_until(3) == [2], "the next time is like the first"


def test_what_failed_long_ago_and_was_given_up_does_not_count(bench: Bench) -> None:
    bench.health.failed(AWAY, since=bench.now)
    bench.now += FORGET_SECONDS + 1
    assert bench.fail_until(3) == [2]
