"""Histories of ``support.sim.histories.shaped`` keep all invariants."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from support.sim.histories import shaped
from support.sim.histories.parallel import failures

pytestmark = pytest.mark.simulation

SEEDS = 30


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", shaped.KINDS)
def test_the_invariants_hold(kind: str, first_seed: int, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, partial(shaped.run, kind), range(first_seed, first_seed + SEEDS))
    assert not found, f"{len(found)} of {SEEDS} histories failed; the first:\n{found[0]}"
