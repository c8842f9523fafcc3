"""The simulation detects broken rules of replication, producers and journals. See ``mutation_detection``."""

from __future__ import annotations

from functools import partial

import pytest

from simulation.mutations import (
    journal_mutations,
    kafka_producer_mutations,
    partition_mutations,
    producer_mutations,
    protocol_mutations,
    quiet_mutations,
)
from simulation.mutations.mutation_detection import Run, check_detected, rules
from simulation.mutations.mutation_table import BreakRule
from support.sim.histories import protocol, shaped

pytestmark = pytest.mark.simulation

RULES = [
    *rules(protocol.run, 400, protocol_mutations.MUTATIONS, producer_mutations.MUTATIONS),
    *rules(partial(shaped.run, "journals"), 100, journal_mutations.MUTATIONS, partition_mutations.MUTATIONS),
    *rules(partial(shaped.run, "kafka"), 60, kafka_producer_mutations.MUTATIONS),
    *rules(partial(shaped.run, "forgetting"), 100, producer_mutations.FORGETTING),
    *rules(partial(shaped.run, "leader-changes"), 100, protocol_mutations.LEADERS),
    *rules(partial(shaped.run, "quiet"), 60, quiet_mutations.MUTATIONS),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rule", "run", "within"), RULES)
def test_a_broken_rule_is_noticed(rule: BreakRule, run: Run, within: int) -> None:
    check_detected(rule, run, within)
