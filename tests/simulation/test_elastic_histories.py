"""Many elastic histories: a varying load, leaders that split, merge, move and scale the fleet, and faults.

In some of them retention removes segments, in some autoscaling is paused for a while.

To repeat one seed, and to draw it: ``PYTHONPATH=tests python -m support.sim.histories elastic SEED`` and
``PYTHONPATH=tests python -m simulation.picture SEED out.svg``.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.checks.elasticity_checker import unchanged_segments
from support.sim.histories.elastic import ElasticHistory, run, shortened_waits
from support.sim.histories.parallel import failures

pytestmark = pytest.mark.simulation


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_invariants_hold_in_every_elastic_history(elastic_seeds: range, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, run, elastic_seeds)
    assert not found, f"{len(found)} of {len(elastic_seeds)} histories failed; the first:\n{found[0]}"


def run_history(seed: int) -> ElasticHistory:
    with shortened_waits():
        history = ElasticHistory(seed)
        history.run()
    return history


@pytest.mark.slow
def test_elastic_histories_are_elastic() -> None:
    """Many histories split, merge, scale brokers and remove segments, so that the checks apply."""
    histories = [run_history(seed) for seed in range(40)]
    reasons = [{s.opened_because.value for _, v in h.checker.layouts for s in v.segments} for h in histories]
    assert sum({"Split", "Merge"} <= found for found in reasons) > 12
    assert sum("Rebalance" in found or "Drain" in found for found in reasons) > 5
    assert sum(any(s.after < s.before for s in h.deployment.scalings) for h in histories) > 5
    assert sum(any(s.after > s.before for s in h.deployment.scalings) for h in histories) > 5
    assert sum(max(len(unchanged_segments(v)) for _, v in h.checker.layouts) >= 4 for h in histories) > 10
    assert sum(len(h.checker.retained.rows) > 3 for h in histories) > 8
    assert sum(h.pausing.drawn for h in histories) > 5
    assert len({h.load.name for h in histories}) >= 8
    assert sum(bool(h.faults.kinds) for h in histories) > 20


def test_a_seed_is_one_history() -> None:
    one, two = run_history(3), run_history(3)
    assert one.world.story.lines == two.world.story.lines
