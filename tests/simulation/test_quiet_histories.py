"""Histories whose flush interval stretches: tails are long, and everything else is as in protocol histories.

To repeat one seed: ``PYTHONPATH=tests python -m support.sim.histories.quiet SEED``.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.histories import quiet
from support.sim.histories.parallel import failures

pytestmark = pytest.mark.simulation

SEEDS = 30


@pytest.mark.slow
def test_the_invariants_hold_while_tails_wait(first_seed: int, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, quiet.run, range(first_seed, first_seed + SEEDS))
    assert not found, f"{len(found)} of {SEEDS} histories failed; the first:\n{found[0]}"
