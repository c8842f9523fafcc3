"""Histories whose flush interval stretches: tails are long, and everything else is as in protocol histories.

To repeat one seed: ``PYTHONPATH=tests python -m support.sim.histories.quiet SEED``.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.engine.world import SECOND
from support.sim.histories import quiet
from support.sim.histories.parallel import failures
from support.sim.histories.protocol import History
from support.sim.histories.quiet import QuietHistory

pytestmark = pytest.mark.simulation

SEEDS = 30


def test_the_invariants_hold_while_tails_wait(first_seed: int, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, quiet.run, range(first_seed, first_seed + SEEDS))
    assert not found, f"{len(found)} of {SEEDS} histories failed; the first:\n{found[0]}"


def test_tails_wait_longer_than_in_other_histories() -> None:
    """A history ends when all tails are written."""

    def duration(kind: type[History], seed: int) -> int:
        history = kind(seed)
        history.run()
        return history.world.now

    longer = [duration(QuietHistory, seed) - duration(History, seed) for seed in range(3)]
    assert max(longer) >= 5 * SECOND, longer
