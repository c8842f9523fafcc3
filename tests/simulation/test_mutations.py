"""The simulation notices when the protocol is broken: each mutation makes some history fail, which else passes."""

import pytest

from simulation.mutations import MUTATIONS
from support.sim.history import run

pytestmark = pytest.mark.simulation

SEEDS = 400
"""Each mutation is caught within so many histories."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        MUTATIONS[name](patch)
        caught = next((seed for seed in range(SEEDS) if run(seed)), None)
    assert caught is not None, f"{SEEDS} histories passed although this rule was broken: {MUTATIONS[name].__doc__}"
    assert run(caught) is None, "the history fails without the mutation too"
