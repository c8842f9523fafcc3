"""Many small histories with faults. Each checks every invariant. A failure prints its seed and its story.

To repeat one seed: ``pytest tests/simulation -k replay --sim-first SEED``, or
``PYTHONPATH=tests python -m support.sim.histories protocol SEED``.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.histories.parallel import failures
from support.sim.histories.protocol import History, run

pytestmark = pytest.mark.simulation

SEEDS = 80


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_invariants_hold_in_every_history(seeds: range, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, run, seeds)
    assert not found, f"{len(found)} of {len(seeds)} histories failed; the first:\n{found[0]}"


def test_replay(first_seed: int) -> None:
    failure = run(first_seed)
    assert failure is None, f"\n{failure}"


@pytest.fixture(scope="module")
def histories() -> list[History]:
    """For tests of what occurs in histories. They change nothing."""
    done = [History(seed) for seed in range(SEEDS)]
    for history in done:
        history.run()
    return done


def test_histories_forget_fence_and_clash(histories: list[History]) -> None:
    """Segments forget producers, also such with batches in flight, and fence others, so that the checks apply."""
    histories = histories[:60]
    seals = [outcome for history in histories for outcome in history.checker.seals.values()]
    assert sum(history.checker.producers.forgotten > 0 for history in histories) > 20
    assert sum(any(producer.unknown for producer in history.producers) for history in histories) > 3
    assert sum(any(producer.stopped for producer in history.producers) for history in histories) > 10
    assert sum(bool(history.checker.producers.claims) for history in histories) > 10
    assert sum(bool(outcome.uninherited) for outcome in seals) > 5


def test_journals_are_damaged_lost_and_sealed_from(histories: list[History]) -> None:
    """Half of the histories have journals, and each fault of a journal occurs in them, so that the checks apply."""
    states: Counter[str] = Counter()
    for history in histories:
        states.update(history.journals.states)
    notes = [text for history in histories for _, _, _, text in history.world.story.lines]
    seals = [outcome for history in histories for outcome in history.checker.seals.values()]
    assert SEEDS // 4 < sum(history.journals.on for history in histories) < SEEDS * 3 // 4
    assert states["kept"] > 20 and states["gone"] > 5
    assert all(states[name] for name in ("truncated", "damaged", "headless", "older"))
    assert sum(text.startswith("seals from the journal") for text in notes) > 20
    assert any(text.startswith("journal.failed ") for text in notes)
    assert any(outcome.lost is not None and outcome.lost.is_certain for outcome in seals)
    assert any(outcome.lost is not None and not outcome.lost.is_certain for outcome in seals)
