"""The simulation notices when a rule is broken: each mutation makes some history fail, which else passes."""

from collections.abc import Callable

import pytest

from simulation import elastic_mutations, ending_mutations, mutations
from support.sim import elastic, history

pytestmark = pytest.mark.simulation

Run = Callable[[int], object]
FIRST = {
    "a_leader_never_reads_the_layout_again": 950,
    "seal_a_successor_before_its_predecessors": 350,
    "a_merged_segment_opens_after_one_of_its_predecessors": 380,
    "let_a_broker_go_while_a_deleted_topic_is_sealed": 450,
    "end_a_topic_without_its_last_layout": 1950,
}
"""Few histories notice these: the search begins where one of them is, the others at 0."""
RULES = [
    *(pytest.param(rule, history.run, 400, id=name) for name, rule in mutations.MUTATIONS.items()),
    *(pytest.param(rule, elastic.run, 500, id=name) for name, rule in elastic_mutations.MUTATIONS.items()),
    *(pytest.param(rule, ending_mutations.run, 500, id=name) for name, rule in ending_mutations.MUTATIONS.items()),
]
"""With the histories that notice it, and within how many of them."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("rule", "run", "within"), RULES)
def test_a_broken_rule_is_noticed(rule: Callable[[pytest.MonkeyPatch], None], run: Run, within: int) -> None:
    first = FIRST.get(rule.__name__, 0)
    with pytest.MonkeyPatch.context() as patch:
        rule(patch)
        caught = next((seed for seed in range(first, first + within) if run(seed)), None)
    assert caught is not None, f"{within} histories from {first} on passed although this is broken: {rule.__doc__}"
    assert run(caught) is None, "the history fails without the mutation too"
