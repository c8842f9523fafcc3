"""Many elastic histories: a load that comes and goes, leaders that split, merge, move and scale the fleet, and faults.

In some of them leaders remove what is beyond the topic's limits, in some a person pauses autoscaling for a while.

One seed again, and as a picture: ``PYTHONPATH=tests python -m support.sim.elastic SEED`` and
``PYTHONPATH=tests python -m simulation.picture SEED out.svg``.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.elastic import ElasticHistory, quicker, run
from support.sim.elasticity import staying
from support.sim.many import failures

pytestmark = pytest.mark.simulation


@pytest.mark.timeout(600)
def test_the_invariants_hold_in_every_elastic_history(elastic_seeds: range, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, run, elastic_seeds)
    assert not found, f"{len(found)} of {len(elastic_seeds)} histories failed; the first:\n{found[0]}"


def played(seed: int) -> ElasticHistory:
    with quicker():
        history = ElasticHistory(seed)
        history.run()
    return history


def test_elastic_histories_are_elastic() -> None:
    """Most of them split, merge and scale brokers, many remove segments, so that what is checked does happen."""
    histories = [played(seed) for seed in range(40)]
    reasons = [{s.opened_because.value for _, v in h.checker.layouts for s in v.segments} for h in histories]
    assert sum({"Split", "Merge"} <= found for found in reasons) > 20
    assert sum("Rebalance" in found or "Drain" in found for found in reasons) > 5
    assert sum(any(s.after < s.before for s in h.deployment.scalings) for h in histories) > 5
    assert sum(any(s.after > s.before for s in h.deployment.scalings) for h in histories) > 5
    assert sum(max(len(staying(v)) for _, v in h.checker.layouts) >= 4 for h in histories) > 10
    assert sum(len(h.checker.retained.rows) > 3 for h in histories) > 8
    assert sum(h.pausing.drawn for h in histories) > 5
    assert len({h.load.name for h in histories}) >= 8
    assert sum(bool(h.faults.kinds) for h in histories) > 20


def test_a_seed_is_one_history() -> None:
    one, two = played(3), played(3)
    assert one.world.story.lines == two.world.story.lines
