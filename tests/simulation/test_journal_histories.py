"""Half of the histories have journals, and each fault of a journal occurs in them, so that the checks apply."""

from __future__ import annotations

from collections import Counter

import pytest

from support.sim.histories.protocol import History

pytestmark = pytest.mark.simulation

SEEDS = 80


def test_journals_are_damaged_lost_and_sealed_from() -> None:
    histories = [History(seed) for seed in range(SEEDS)]
    for history in histories:
        history.run()
    states: Counter[str] = Counter()
    for history in histories:
        states.update(history.journals.states)
    notes = [text for history in histories for _, _, _, text in history.world.story.lines]
    seals = [outcome for history in histories for outcome in history.checker.seals.values()]
    assert SEEDS // 4 < sum(history.journals.on for history in histories) < SEEDS * 3 // 4
    assert states["kept"] > 20 and states["gone"] > 5
    assert all(states[name] for name in ("truncated", "damaged", "headless", "older"))
    assert sum(text.startswith("seals from the journal") for text in notes) > 20
    assert any(text == "the journal fails" for text in notes)
    assert any(outcome.lost is not None and outcome.lost.is_certain for outcome in seals)
    assert any(outcome.lost is not None and not outcome.lost.is_certain for outcome in seals)
