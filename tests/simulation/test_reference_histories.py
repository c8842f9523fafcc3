"""Histories with references and large values keep all invariants, and what they are about occurs in them."""

from __future__ import annotations

from collections import Counter

import pytest

from support.sim.histories.elastic import shortened_waits
from support.sim.histories.elastic_references import ElasticReferenceHistory
from support.sim.histories.references import ReferenceHistory

pytestmark = pytest.mark.simulation

SEEDS = 60


ELASTIC_SEEDS = 24


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_references_are_published_rejected_and_collected() -> None:
    notes: Counter[str] = Counter()
    published = rejected = collected = sent = read = 0
    for seed in range(SEEDS):
        history = ReferenceHistory(seed)
        history.run()
        assert history.references is not None
        published += history.references.published
        rejected += len(history.references.rejected)
        collected += history.references.collected
        assert history.large_values is not None
        sent += history.large_values.sent
        read += history.large_values.read
        for *_, text in history.world.story.lines:
            if text.startswith("rejects"):
                notes[text.rpartition(": ")[2]] += 1
    assert published > 20 * SEEDS and rejected > 2 * SEEDS and collected > SEEDS
    assert sent > 5 * SEEDS and read > sent and notes["the object is too old"] > 20
    assert notes["the upload is too old"] > 20 and notes["the upload has another etag"] > 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_references_beside_splits_moves_and_retention() -> None:
    published = rejected = collected = removed = 0
    with shortened_waits():
        for seed in range(ELASTIC_SEEDS):
            history = ElasticReferenceHistory(seed)
            history.run()
            if history.references is not None:
                published += history.references.published
                rejected += len(history.references.rejected)
                collected += history.references.collected
                removed += len(history.checker.retained.rows)
    assert published > 10 * ELASTIC_SEEDS and rejected > ELASTIC_SEEDS and collected > ELASTIC_SEEDS
    assert removed > ELASTIC_SEEDS // 2
