"""Requests to a server that is gone, or slow, in virtual time."""

from __future__ import annotations

import pytest

from smq.transport.adaptive_timeout import AdaptiveTimeout


@pytest.fixture
def timeout() -> AdaptiveTimeout:
    return AdaptiveTimeout(0.3, 10.0)


def test_a_slow_server_gets_an_answer_through_in_the_end(timeout: AdaptiveTimeout) -> None:
    now, needs, requests = 0.0, 4.0, 0
    while timeout.seconds < needs:
        assert timeout.may_send(now)
        requests += 1
        failed_at = now + timeout.seconds
        timeout.failed(now, failed_at)
        now = failed_at
        while not timeout.may_send(now):
            now += 0.1
    assert requests == 4
    timeout.answered()
    assert timeout.seconds == 0.3


def test_a_server_that_is_gone_takes_a_quarter_of_the_time_at_most(timeout: AdaptiveTimeout) -> None:
    now = waited = 0.0
    while now < 600:
        failed_at = now + timeout.seconds
        waited += timeout.seconds
        timeout.failed(now, failed_at)
        now = failed_at
        while not timeout.may_send(now):
            now += 0.01
    assert timeout.seconds == 10.0
    assert waited <= 600 / 4 + 10


def test_a_refused_connection_needs_no_longer_timeout(timeout: AdaptiveTimeout) -> None:
    timeout.failed(5.0, 5.01)
    assert timeout.seconds == 0.3
    assert not timeout.may_send(5.5)
    assert timeout.may_send(6.01)
