"""Histories of pinned reads keep all invariants, and what they are about occurs in them."""

from __future__ import annotations

import pytest

from support.sim.histories.pinned_reads import PinHistory

pytestmark = pytest.mark.simulation

SEEDS = 30


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_pinned_readers_read_what_retention_removes_and_late_ones_begin_again() -> None:
    completed = expired = kept = published = 0
    for seed in range(SEEDS):
        history = PinHistory(seed)
        history.run()
        completed += history.completed
        expired += history.expired
        kept += history.checker.kept
        published += history.published
    assert completed > 10 * SEEDS and expired > SEEDS and kept > SEEDS // 2 and published > 3 * SEEDS
