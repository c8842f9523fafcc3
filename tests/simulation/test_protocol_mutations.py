"""The simulation detects broken rules of replication, producers and journals. See ``mutation_detection``."""

from __future__ import annotations

import pytest

from simulation.mutations import (
    journal_mutations,
    producer_mutations,
    protocol_mutations,
    quiet_mutations,
)
from simulation.mutations.mutation_detection import Run, check_detected, rules
from simulation.mutations.mutation_table import BreakRule
from support.sim.histories import protocol, quiet

pytestmark = pytest.mark.simulation

RULES = [
    *rules(protocol.run, 400, protocol_mutations.MUTATIONS, producer_mutations.MUTATIONS, journal_mutations.MUTATIONS),
    *rules(quiet.run, 60, quiet_mutations.MUTATIONS),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rule", "run", "within"), RULES)
def test_a_broken_rule_is_noticed(rule: BreakRule, run: Run, within: int) -> None:
    check_detected(rule, run, within)
