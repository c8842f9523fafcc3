"""The simulation notices when a rule is broken: each mutation makes some history fail, which else passes."""

from collections.abc import Callable

import pytest

from simulation import elastic_mutations, ending_mutations, mutations
from support.sim import elastic, history

pytestmark = pytest.mark.simulation

Run = Callable[[int], object]
RULES = [
    *(pytest.param(rule, history.run, 400, id=name) for name, rule in mutations.MUTATIONS.items()),
    *(pytest.param(rule, elastic.run, 500, id=name) for name, rule in elastic_mutations.MUTATIONS.items()),
    *(pytest.param(rule, ending_mutations.run, 500, id=name) for name, rule in ending_mutations.MUTATIONS.items()),
]
"""With the histories that notice it, and within how many of them."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("rule", "run", "within"), RULES)
def test_a_broken_rule_is_noticed(rule: Callable[[pytest.MonkeyPatch], None], run: Run, within: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        rule(patch)
        caught = next((seed for seed in range(within) if run(seed)), None)
    assert caught is not None, f"{within} histories passed although this rule was broken: {rule.__doc__}"
    assert run(caught) is None, "the history fails without the mutation too"
