"""Histories whose desired schema changes, under faults.

To repeat one seed: ``PYTHONPATH=tests python -m support.sim.histories schema_change SEED``.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.histories import schema_change
from support.sim.histories.parallel import failures
from support.sim.histories.schema_change import SchemaHistory

pytestmark = pytest.mark.simulation


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_invariants_hold_while_the_schema_changes(schema_seeds: range, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, schema_change.run, schema_seeds)
    assert not found, f"{len(found)} of {len(schema_seeds)} histories failed; the first:\n{found[0]}"


@pytest.mark.slow
def test_schemas_change_in_the_middle_of_everything() -> None:
    """Most histories have several versions and re-shaped batches, and some have two leaders of different mind."""
    found: Counter[str] = Counter()
    for seed in range(60):
        history = SchemaHistory(seed)
        history.run()
        layouts = [layout for _, layout in history.checker.layouts]
        found["changed"] += layouts[-1].schemas[-1].version > 0
        found["changed often"] += layouts[-1].schemas[-1].version > 2
        found["dropped"] += bool(layouts[-1].schemas[-1].dropped)
        found["rolled out"] += any(
            s.phase.value == "open" and not s.successors and s.schema_version < layout.schemas[-1].version
            for layout in layouts
            for s in layout.segments
        )
        found["re-shaped"] += history.reshaped > 0
        found["waited"] += history.waited > 0
        found["outdated leader"] += history.outdated > 0
    assert found["changed"] > 45 and found["changed often"] > 10 and found["waited"] > 0
    assert all(found[what] > 3 for what in ("dropped", "rolled out", "re-shaped", "outdated leader")), found
