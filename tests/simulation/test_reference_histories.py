"""Histories with references keep all invariants, and what they are about occurs in them."""

from __future__ import annotations

from collections import Counter

import pytest

from support.sim.histories.references import ReferenceHistory

pytestmark = pytest.mark.simulation

SEEDS = 60


@pytest.mark.timeout(1800)
def test_references_are_published_rejected_and_collected() -> None:
    notes: Counter[str] = Counter()
    published = rejected = collected = 0
    for seed in range(SEEDS):
        history = ReferenceHistory(seed)
        history.run()
        assert history.references is not None
        published += history.references.published
        rejected += len(history.references.rejected)
        collected += history.references.collected
        for *_, text in history.world.story.lines:
            if text.startswith("rejects"):
                notes[text.rpartition(": ")[2]] += 1
    assert published > 20 * SEEDS and rejected > 2 * SEEDS and collected > SEEDS
    assert notes["the upload is too old"] > 20 and notes["the upload has another etag"] > 20
