"""The elastic histories notice when elasticity is broken: each mutation makes one fail, which else passes."""

import pytest

from simulation.elastic_mutations import MUTATIONS
from support.sim.elastic import run

pytestmark = pytest.mark.simulation

SEEDS = 120
"""Each mutation is caught within so many histories."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        MUTATIONS[name](patch)
        caught = next((seed for seed in range(SEEDS) if run(seed)), None)
    assert caught is not None, f"{SEEDS} histories passed although this rule was broken: {MUTATIONS[name].__doc__}"
    assert run(caught) is None, "the history fails without the mutation too"
