"""The simulation detects broken rules: each mutation makes some history fail that passes without it."""

from collections.abc import Callable

import pytest

from simulation import (
    atomic_mutations,
    deletion_mutations,
    elastic_mutations,
    journal_mutations,
    manifest_mutations,
    mutations,
    pin_mutations,
    producer_mutations,
    quiet_mutations,
    reference_mutations,
    schema_mutations,
    upload_mutations,
)
from simulation.first_seeds import FIRST_SEEDS
from support.sim.histories import (
    atomic,
    elastic,
    elastic_references,
    pinned_reads,
    protocol,
    quiet,
    references,
    schema_change,
)

pytestmark = pytest.mark.simulation

Run = Callable[[int], object]
RULES = [
    *(pytest.param(rule, protocol.run, 400, id=name) for name, rule in mutations.MUTATIONS.items()),
    *(pytest.param(rule, protocol.run, 400, id=name) for name, rule in producer_mutations.MUTATIONS.items()),
    *(pytest.param(rule, protocol.run, 400, id=name) for name, rule in journal_mutations.MUTATIONS.items()),
    *(pytest.param(rule, quiet.run, 60, id=name) for name, rule in quiet_mutations.MUTATIONS.items()),
    *(pytest.param(rule, elastic.run, 500, id=name) for name, rule in elastic_mutations.MUTATIONS.items()),
    *(pytest.param(rule, elastic.run, 500, id=name) for name, rule in manifest_mutations.MUTATIONS.items()),
    *(pytest.param(rule, references.run, 100, id=name) for name, rule in reference_mutations.MUTATIONS.items()),
    *(pytest.param(rule, atomic.run, 60, id=name) for name, rule in atomic_mutations.MUTATIONS.items()),
    *(pytest.param(rule, elastic_references.run, 100, id=name) for name, rule in upload_mutations.MUTATIONS.items()),
    *(pytest.param(rule, pinned_reads.run, 60, id=name) for name, rule in pin_mutations.MUTATIONS.items()),
    *(pytest.param(rule, schema_change.run, 200, id=name) for name, rule in schema_mutations.MUTATIONS.items()),
    *(pytest.param(rule, deletion_mutations.run, 500, id=name) for name, rule in deletion_mutations.MUTATIONS.items()),
]
"""The mutation with the histories that detect it, and how many of them are tried."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rule", "run", "within"), RULES)
def test_a_broken_rule_is_noticed(rule: Callable[[pytest.MonkeyPatch], None], run: Run, within: int) -> None:
    first = FIRST_SEEDS.get(rule.__name__, 0)
    with pytest.MonkeyPatch.context() as patch:
        rule(patch)
        caught = next((seed for seed in range(first, first + within) if run(seed)), None)
    assert caught is not None, f"{within} histories from {first} on passed although this is broken: {rule.__doc__}"
    failure = run(caught)
    assert failure is None, f"the history fails without the mutation too: {failure}"
