"""The simulation detects broken rules of scaling, file lists, deletions and uploads. See ``mutation_detection``."""

from __future__ import annotations

from functools import partial

import pytest

from simulation.mutations import (
    deletion_mutations,
    elastic_mutations,
    file_list_mutations,
    large_value_mutations,
    upload_mutations,
)
from simulation.mutations.mutation_detection import Run, check_detected, rules
from simulation.mutations.mutation_table import BreakRule
from support.sim.histories import elastic, elastic_references, shaped

pytestmark = pytest.mark.simulation

RULES = [
    *rules(elastic.run, 500, elastic_mutations.MUTATIONS, file_list_mutations.MUTATIONS, deletion_mutations.ORPHANS),
    *rules(partial(shaped.run, "deletions"), 100, deletion_mutations.MUTATIONS),
    *rules(partial(shaped.run, "drained-deletions"), 100, deletion_mutations.DRAINED),
    *rules(elastic_references.run, 100, upload_mutations.MUTATIONS, large_value_mutations.COLLECTION),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rule", "run", "within"), RULES)
def test_a_broken_rule_is_noticed(rule: BreakRule, run: Run, within: int) -> None:
    check_detected(rule, run, within)
