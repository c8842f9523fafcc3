"""Many small histories with faults. Each checks every invariant. A failure prints its seed and its story.

To repeat one seed: ``pytest tests/simulation -k replay --sim-first SEED``, or
``PYTHONPATH=tests python -m support.sim.histories.protocol SEED``.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.histories.parallel import failures
from support.sim.histories.protocol import History, run

pytestmark = pytest.mark.simulation


@pytest.mark.timeout(1800)
def test_the_invariants_hold_in_every_history(seeds: range, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, run, seeds)
    assert not found, f"{len(found)} of {len(seeds)} histories failed; the first:\n{found[0]}"


def test_replay(first_seed: int) -> None:
    failure = run(first_seed)
    assert failure is None, f"\n{failure}"


def test_histories_forget_fence_and_clash() -> None:
    """Segments forget producers, also such with batches in flight, and fence others, so that the checks apply."""
    histories = [History(seed) for seed in range(60)]
    for history in histories:
        history.run()
    seals = [outcome for history in histories for outcome in history.checker.seals.values()]
    assert sum(history.checker.producers.forgotten > 0 for history in histories) > 20
    assert sum(any(producer.unknown for producer in history.producers) for history in histories) > 3
    assert sum(any(producer.stopped for producer in history.producers) for history in histories) > 10
    assert sum(bool(history.checker.producers.claims) for history in histories) > 10
    assert sum(bool(outcome.uninherited) for outcome in seals) > 5
