"""Histories of groups whose members keep what the client library keeps, under the operator's own leaders.

To repeat one seed: ``PYTHONPATH=tests python -m support.sim.histories groups SEED``.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from simulation.mutations import group_mutations
from simulation.mutations.mutation_detection import Run, check_detected, rules
from simulation.mutations.mutation_table import BreakRule
from support.sim.histories import groups, shaped
from support.sim.histories.elastic import shortened_waits
from support.sim.histories.groups import GroupHistory
from support.sim.histories.parallel import failures

pytestmark = pytest.mark.simulation

RULES = [
    *rules(groups.run, 40, group_mutations.MUTATIONS),
    *rules(partial(shaped.run, "resets"), 60, group_mutations.RESETS),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_groups_commit_what_their_members_were_given(group_seeds: range, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, groups.run, group_seeds)
    assert not found, f"{len(found)} of {len(group_seeds)} histories failed; the first:\n{found[0]}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_positions_are_set_and_commits_refused_in_the_middle_of_everything() -> None:
    found: Counter[str] = Counter()
    for seed in range(30):
        with shortened_waits():
            history = GroupHistory(seed)
            history.run()
        found.update(history.found.keys())
    assert all(
        found[what] >= 5
        for what in (
            "a reset",
            "a member forgot its positions",
            "a commit was refused",
            "a commit beyond the end",
            "the leader refused a position",
        )
    ), found
    assert found["a deletion"] >= 3, found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rule", "run", "within"), RULES)
def test_a_broken_rule_of_groups_is_noticed(rule: BreakRule, run: Run, within: int) -> None:
    check_detected(rule, run, within)
