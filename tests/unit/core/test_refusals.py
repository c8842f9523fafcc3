"""Who refuses segments is asked again ever more rarely."""

from __future__ import annotations

from smq_core.refusals import FIRST_REST, FORGOTTEN_AFTER, LONGEST_REST, Refusals


def test_rests_grow_until_it_opens_something():
    refusals, now, rests = Refusals(), 1_000_000, []
    for _ in range(9):
        refusals.refused("a", now)
        refusals.refused("a", now)  # another segment, asked at the same time
        assert refusals.resting(now) == {"a"}
        began = now
        while refusals.resting(now):
            now += FIRST_REST
        rests.append(now - began)
    assert rests[:3] == [FIRST_REST, 2 * FIRST_REST, 4 * FIRST_REST] and rests[-1] == LONGEST_REST
    refusals.refused("a", now)
    refusals.opened("a")
    assert refusals.resting(now) == set()
    refusals.refused("a", now)
    assert refusals.resting(now + FIRST_REST) == set()


def test_what_was_long_ago_is_forgotten():
    refusals = Refusals()
    refusals.refused("a", 0)
    later = FIRST_REST + FORGOTTEN_AFTER
    refusals.refused("a", later)
    assert refusals.resting(later + FIRST_REST) == set()


def test_a_clock_that_jumps_back_makes_nobody_rest_for_ever():
    refusals = Refusals()
    refusals.refused("a", 1_000_000_000)
    assert refusals.resting(0) == set()
