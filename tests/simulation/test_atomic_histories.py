"""Histories with atomic publishes keep all invariants, and what they are about occurs in them."""

from __future__ import annotations

from collections import Counter

import pytest

from smq_core.model.atomic_publish import CommitResult
from support.sim.histories.atomic import AtomicHistory
from support.sim.leaders.publish_completer import STEPS

pytestmark = pytest.mark.simulation

SEEDS = 25


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_versions_are_published_repeated_and_taken_over() -> None:
    results: Counter[CommitResult] = Counter()
    paused: Counter[str] = Counter()
    committed = fenced = renewed = taken_over = removed = 0
    for seed in range(SEEDS):
        history = AtomicHistory(seed)
        history.run()
        publishes = history.publishes
        results += publishes.results
        committed += len(publishes.committed)
        fenced += publishes.fenced
        renewed += publishes.renewed
        paused += publishes.paused
        taken_over += publishes.taken_over
        removed += len(history.checker.retained.rows)
    assert committed > 4 * SEEDS and results[CommitResult.ALREADY_PUBLISHED] > SEEDS // 2
    assert fenced > SEEDS // 2 and renewed > 3
    assert all(paused[step] for step in STEPS) and sum(paused.values()) > SEEDS, paused
    assert taken_over > SEEDS // 4, "leaders that were paused while another one completed their publish"
    assert removed > SEEDS, "segments that retention removed between publishes"
