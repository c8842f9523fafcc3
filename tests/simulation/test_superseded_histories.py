"""Histories of compactions keep all invariants while superseded chunks are deleted, and what they are about occurs."""

from __future__ import annotations

import pytest

from simulation.mutations import superseded_mutations
from simulation.mutations.mutation_detection import Run, check_detected, rules
from simulation.mutations.mutation_table import BreakRule
from support.sim.histories import superseded
from support.sim.histories.superseded import SupersededHistory

pytestmark = pytest.mark.simulation

SEEDS = 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_superseded_chunks_are_deleted_beside_readers_retention_and_compactions() -> None:
    completed = expired = planned_again = compacted = deleted = replaced = kept = removed = damaged = 0
    for seed in range(SEEDS):
        history = SupersededHistory(seed)
        history.run()
        completed += history.completed
        expired += history.expired
        planned_again += history.planned_again
        compacted += history.compacted
        deleted += history.checker.deleted
        replaced += history.checker.replaced
        kept += history.checker.kept
        removed += history.checker.removed
        damaged += len(history.checker.damaged)
    assert completed > 10 * SEEDS and expired > SEEDS // 4 and planned_again > SEEDS // 4
    assert compacted > 5 * SEEDS and deleted > 20 * SEEDS and replaced > 3 * SEEDS
    assert kept > SEEDS and removed > 2 * SEEDS and damaged > SEEDS // 4


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rule", "run", "within"), rules(superseded.run, 60, superseded_mutations.MUTATIONS))
def test_a_broken_rule_is_noticed(rule: BreakRule, run: Run, within: int) -> None:
    check_detected(rule, run, within)
