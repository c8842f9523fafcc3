"""Many small histories with faults; each checks every invariant. A failure prints its seed and its story.

One seed again: ``pytest tests/simulation -k replay --sim-first SEED --sim-seeds 1``, or
``cd tests && python -m support.sim.history SEED``.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from support.sim.history import run

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def workers():
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        yield pool


@pytest.mark.timeout(600)
def test_the_invariants_hold_in_every_history(seeds, workers):
    failures = [str(failure) for failure in workers.map(run, seeds, chunksize=10) if failure]
    assert not failures, f"{len(failures)} of {len(seeds)} histories failed; the first:\n{failures[0]}"


def test_replay(first_seed):
    failure = run(first_seed)
    assert failure is None, f"\n{failure}"
