"""Budgets of primaries, followers and readers."""

import pytest

from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.memory.budgets import (
    MAX_CREDIT_BYTES,
    MIB,
    MIN_CREDIT_BYTES,
    OVERCOMMIT_RATIO,
    FollowerBudget,
    PrimaryBudget,
    ReaderBudget,
    budgets,
    tails_to_flush,
)


def test_a_primary_takes_up_to_its_limit():
    budget = PrimaryBudget(100, 100)
    assert budget.reserve(60)
    assert not budget.reserve(41)
    assert budget.reserve(40)
    budget.change(-100, -100)
    assert budget.used == 0


def test_one_batch_larger_than_the_budget_is_admitted_alone():
    budget = PrimaryBudget(100, 100)
    assert budget.reserve(500)
    assert not budget.reserve(1)


def test_pressure_comes_before_the_limit():
    budget = PrimaryBudget(100, 100)
    budget.reserve(60)
    assert not budget.under_pressure
    budget.reserve(10)
    assert budget.under_pressure


def test_credits_shrink_as_the_budget_is_used_up_and_only_the_smallest_go_beyond_it():
    budget = FollowerBudget(400 * MIB, 400 * MIB)
    credits = []
    while (credit := budget.grant(f"s{len(credits)}")) is not None:
        credits.append(credit)
    assert credits[0] == MAX_CREDIT_BYTES
    assert credits == sorted(credits, reverse=True)
    assert credits[-1] == MIN_CREDIT_BYTES
    assert sum(credits) <= 400 * MIB * OVERCOMMIT_RATIO < sum(credits) + MIN_CREDIT_BYTES
    within = [c for c in credits if c > MIN_CREDIT_BYTES]
    assert sum(within) <= 400 * MIB


def test_a_credit_is_the_same_until_it_is_released():
    budget = FollowerBudget(40 * MIB, 40 * MIB)
    first = budget.grant("a")
    budget.grant("b")
    assert budget.grant("a") == first
    budget.release("b")
    assert budget.grant("c") == pytest.approx((40 * MIB - first) / 4, abs=1)


def test_readers_share_what_is_there():
    budget = ReaderBudget(6 * MIB)
    assert [budget.grant(name) for name in "abc"] == [4 * MIB, 2 * MIB, 0]
    budget.release("a")
    assert budget.grant("d") == 4 * MIB


def test_the_budgets_leave_memory_for_the_rest():
    primary, follower, reader = budgets(1000 * MIB, 0)
    assert primary.limit + follower.limit + reader.limit <= 800 * MIB


@pytest.mark.parametrize(
    ("used", "expected"),
    [(40, []), (60, ["big"]), (95, ["big"]), (100, ["big", "middle"]), (300, ["big", "middle", "small"])],
)
def test_the_largest_tails_are_relieved_down_to_half(used: int, expected: list[str]):
    tails = [(5, "small"), (45, "big"), (20, "middle"), (0, "empty")]
    assert tails_to_flush(tails, used, 100) == expected


def test_a_credit_grows_with_its_use_and_leaves_something_for_segments_to_come():
    budget = FollowerBudget(1000 * MIB, 1000 * MIB)
    announced = budget.grant("a")
    assert announced == 64 * MIB
    grown = []
    while (more := budget.adjust("a", used=announced // 2 + 1, in_memory=0, acknowledged=announced)) != announced:
        grown.append(more // MIB)
        announced = more
    assert grown == [128, 256, 512, 750]
    assert budget.granted_bytes == 750 * MIB
    assert budget.grant("b") == 250 * MIB // 4, "the reserve is for later segments"
    assert budget.adjust("a", used=0, in_memory=0, acknowledged=announced) < announced, "unused credit is reduced"


def test_a_credit_is_raised_before_a_burst_has_used_half_of_it():
    budget = FollowerBudget(1000 * MIB, 1000 * MIB)
    announced = budget.grant("a")
    assert announced is not None
    assert budget.adjust("a", used=announced // 4, in_memory=0, acknowledged=announced) == announced
    assert budget.adjust("a", used=announced * 2 // 5, in_memory=0, acknowledged=announced) == 2 * announced


def test_a_credit_is_not_changed_again_before_its_primary_keeps_within_it():
    budget = FollowerBudget(1000 * MIB, 1000 * MIB)
    first = budget.grant("a")
    assert first is not None
    announced = budget.adjust("a", used=first, in_memory=0, acknowledged=first)
    assert budget.adjust("a", used=announced, in_memory=0, acknowledged=first) == announced
    assert budget.adjust("a", used=announced, in_memory=0, acknowledged=0) == announced, (
        "the primary has not acknowledged the change"
    )


def test_a_lower_credit_frees_memory_only_when_its_primary_keeps_within_it():
    budget = FollowerBudget(1000 * MIB, 1000 * MIB)
    first = budget.grant("a")
    assert first is not None
    doubled = budget.adjust("a", used=first, in_memory=0, acknowledged=first)
    assert budget.adjust("a", used=0, in_memory=0, acknowledged=doubled) == first
    assert budget.granted_bytes == doubled
    assert budget.adjust("a", used=0, in_memory=0, acknowledged=doubled) == first
    assert budget.granted_bytes == doubled
    assert budget.adjust("a", used=0, in_memory=0, acknowledged=first) == first, "never below the initial credit"
    assert budget.granted_bytes == first


def test_a_released_segment_has_no_credit_to_adjust():
    budget = FollowerBudget(1000 * MIB, 1000 * MIB)
    budget.grant("a")
    budget.release("a")
    assert budget.adjust("a", used=1, in_memory=0, acknowledged=1) == 0
    assert budget.granted_bytes == 0


def test_a_primary_takes_as_much_as_the_journal_may_have_while_its_memory_is_free():
    budget = PrimaryBudget(100, 300)
    for _ in range(3):
        assert budget.reserve(90)
        budget.change(0, -90)  # the rows are in the journal's files
    assert not budget.reserve(31)
    assert budget.reserve(30)


def test_a_primary_takes_no_more_in_memory_than_without_a_journal():
    budget = PrimaryBudget(100, 300)
    assert budget.reserve(90)
    assert not budget.reserve(11)


def test_a_large_journal_does_not_delay_the_first_flush():
    budget = PrimaryBudget(100, 1000)
    budget.reserve(70)
    budget.change(0, -70)
    assert budget.under_pressure


def test_a_credit_is_as_large_as_the_journal_allows():
    budget = FollowerBudget(4000 * MIB, 100 * MIB)
    announced = budget.grant("a")
    assert announced is not None
    for _ in range(8):
        announced = budget.adjust("a", used=announced, in_memory=0, acknowledged=announced)
    assert announced > 2000 * MIB


def test_a_follower_takes_no_more_in_memory_than_without_a_journal():
    budget = FollowerBudget(4000 * MIB, 100 * MIB)
    credits = {name: budget.grant(name) for name in "ab"}
    assert budget.adjust("a", used=60 * MIB, in_memory=60 * MIB, acknowledged=credits["a"] or 0) > 60 * MIB
    assert budget.adjust("b", used=50 * MIB, in_memory=50 * MIB, acknowledged=credits["b"] or 0) == 50 * MIB
    budget.release("a")
    assert budget.adjust("b", used=50 * MIB, in_memory=50 * MIB, acknowledged=50 * MIB) == 100 * MIB


def test_a_journal_makes_tails_larger_and_never_smaller():
    small, large = budgets(1000 * MIB, 10 * MIB), budgets(1000 * MIB, 10_000 * MIB)
    assert small[:2] == budgets(1000 * MIB, 0)[:2]
    primary, follower, _ = large
    assert (primary.limit, follower.memory_limit) == (small[0].limit, small[1].memory_limit)
    assert primary.tail_limit + follower.limit == 8_000 * MIB


def test_memory_and_journal_are_shown_as_separate_budgets():
    with_journal, without = MemoryAccounting(1000, 10_000), MemoryAccounting(1000)
    for memory in (with_journal, without):
        assert memory.reserve(300)
        memory.change(0, -200)
    assert with_journal.usage() == {"producers": (100, 350), "replication": (0, 4000), "journal": (300, 4000)}
    assert without.usage() == {"producers": (100, 350), "replication": (0, 350)}
