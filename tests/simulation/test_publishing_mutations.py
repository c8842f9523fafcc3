"""The simulation detects broken rules of references, publishes, pins and schemas. See ``mutation_detection``."""

from __future__ import annotations

import pytest

from simulation.mutations import (
    atomic_mutations,
    large_value_mutations,
    pin_mutations,
    reference_mutations,
    schema_mutations,
)
from simulation.mutations.mutation_detection import Run, check_detected, rules
from simulation.mutations.mutation_table import BreakRule
from support.sim.histories import atomic, pinned_reads, references, schema_change

pytestmark = pytest.mark.simulation

RULES = [
    *rules(references.run, 100, reference_mutations.MUTATIONS, large_value_mutations.MUTATIONS),
    *rules(atomic.run, 60, atomic_mutations.MUTATIONS),
    *rules(pinned_reads.run, 60, pin_mutations.MUTATIONS),
    *rules(schema_change.run, 200, schema_mutations.MUTATIONS),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rule", "run", "within"), RULES)
def test_a_broken_rule_is_noticed(rule: BreakRule, run: Run, within: int) -> None:
    check_detected(rule, run, within)
