"""Many small histories with faults; each checks every invariant. A failure prints its seed and its story.

One seed again: ``pytest tests/simulation -k replay --sim-first SEED``, or
``PYTHONPATH=tests python -m support.sim.history SEED``.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.history import run
from support.sim.many import failures

pytestmark = pytest.mark.simulation


@pytest.mark.timeout(600)
def test_the_invariants_hold_in_every_history(seeds: range, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, run, seeds)
    assert not found, f"{len(found)} of {len(seeds)} histories failed; the first:\n{found[0]}"


def test_replay(first_seed: int) -> None:
    failure = run(first_seed)
    assert failure is None, f"\n{failure}"
