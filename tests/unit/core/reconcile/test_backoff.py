"""Who refuses segments is asked again ever more rarely."""

from __future__ import annotations

from smq_core.reconcile.opening_progress import BACKOFF_RESET_AFTER, FIRST_COOLDOWN, MAX_COOLDOWN, OpenBackoff


def test_cooldown_grows_until_a_segment_opens():
    backoff, now, cooldowns = OpenBackoff(), 1_000_000, []
    for _ in range(9):
        backoff.refused("a", now)
        backoff.refused("a", now)  # another segment, asked at the same time
        assert backoff.cooling_down(now) == {"a"}
        began = now
        while backoff.cooling_down(now):
            now += FIRST_COOLDOWN
        cooldowns.append(now - began)
    assert cooldowns[:3] == [FIRST_COOLDOWN, 2 * FIRST_COOLDOWN, 4 * FIRST_COOLDOWN] and cooldowns[-1] == MAX_COOLDOWN
    backoff.refused("a", now)
    backoff.opened("a")
    assert backoff.cooling_down(now) == set()
    backoff.refused("a", now)
    assert backoff.cooling_down(now + FIRST_COOLDOWN) == set()


def test_what_was_long_ago_is_forgotten():
    backoff = OpenBackoff()
    backoff.refused("a", 0)
    later = FIRST_COOLDOWN + BACKOFF_RESET_AFTER
    backoff.refused("a", later)
    assert backoff.cooling_down(later + FIRST_COOLDOWN) == set()


def test_a_clock_that_jumps_back_does_not_extend_a_cooldown():
    backoff = OpenBackoff()
    backoff.refused("a", 1_000_000_000)
    assert backoff.cooling_down(0) == set()
