"""Whose quota counts, and what a change of it does."""

from __future__ import annotations

import pytest

from smq_core.access.quotas import NO_QUOTA, Quota, QuotaMeter, TopicQuota, quota_of
from smq_core.access.rights import Right
from smq_core.errors import QuotaExceeded

SLOW, FAST = Quota(bytes_per_second=100), Quota(bytes_per_second=1000)
QUOTAS = (
    TopicQuota(identity="ada", produce=SLOW),
    TopicQuota(identity="*", produce=FAST, consume=FAST),
    TopicQuota(identity="free"),
)


@pytest.mark.parametrize(
    ("identity", "right", "quota"),
    [
        ("ada", Right.PRODUCE, SLOW),
        ("ada", Right.CONSUME, NO_QUOTA),
        ("ada", Right.ADMINISTER, NO_QUOTA),
        ("free", Right.PRODUCE, NO_QUOTA),
        ("bob", Right.PRODUCE, FAST),
        ("bob", Right.CONSUME, FAST),
        ("bob", Right.ADMINISTER, NO_QUOTA),
    ],
)
def test_an_own_entry_counts_as_a_whole(identity: str, right: Right, quota: Quota) -> None:
    assert quota_of(QUOTAS, identity, right) == quota
    assert quota_of((), identity, right) == NO_QUOTA


def meter(quota: Quota) -> QuotaMeter:
    return QuotaMeter(identity="ada", topic="travel/flights", right=Right.PRODUCE, quota=quota)


def test_a_new_stream_waits_for_what_others_have_used() -> None:
    limited = meter(SLOW)
    usage = limited.use(1000, 1, 0.0)
    limited.close_stream()
    again = limited.open_stream()
    assert limited.wait_seconds(again, 0.0) == limited.wait_seconds(usage, 0.0) == 9.0


def test_the_streams_of_an_identity_wait_one_after_the_other() -> None:
    limited = meter(SLOW)
    first, second = limited.use(200, 1, 0.0), limited.use(200, 1, 0.0)
    assert [limited.wait_seconds(it, 0.0) for it in (first, second)] == [1.0, 3.0]


def test_the_slower_of_two_rates_counts() -> None:
    limited = meter(Quota(bytes_per_second=100, messages_per_second=1))
    assert limited.wait_seconds(limited.use(200, 10, 0.0), 0.0) == 9.0
    assert limited.wait_seconds(limited.use(10_000, 0, 0.0), 0.0) == 101.0


@pytest.mark.parametrize(("quota", "wait"), [(FAST, 0.5), (NO_QUOTA, 0.0), (Quota(bytes_per_second=10), 50.0)])
def test_whoever_waits_waits_by_the_new_quota(quota: Quota, wait: float) -> None:
    limited = meter(SLOW)
    usage = limited.use(1000, 1, 0.0)
    assert limited.wait_seconds(usage, 4.0) == 5.0
    limited.quota = quota
    assert limited.wait_seconds(usage, 4.0) == wait
    limited.quota = SLOW
    assert limited.wait_seconds(usage, 100.0) == 0.0


def test_streams_above_the_quota_are_refused_with_who_and_what() -> None:
    limited = meter(Quota(streams=2))
    limited.open_stream()
    limited.open_stream()
    with pytest.raises(QuotaExceeded) as caught:
        limited.open_stream()
    error = caught.value
    assert (error.identity, error.topic, error.limit, error.retry) == ("ada", "travel/flights", 2, True)
    for part in ("ada has used up", "to produce travel/flights", "which is 2", "produce.streams", "spec.quotas"):
        assert part in error.message
    limited.close_stream()
    limited.open_stream()
    assert not limited.quota.limits_rates
