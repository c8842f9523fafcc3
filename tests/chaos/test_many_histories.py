"""The simulation at length: 10,000 elastic histories, 10,000 of the protocol, 1,000 of each other kind.

None of them is among those of `make test`. ``--chaos-first SEED`` tries others, ``--chaos-histories N`` more or fewer.
A failure prints its seed, its story and the command that shows it again.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import pytest

from support.sim.histories import elastic, elastic_references, groups, leader_process, references, schema_change, shaped
from support.sim.histories import protocol as history
from support.sim.histories.parallel import failures, workers

pytestmark = [pytest.mark.chaos, pytest.mark.simulation, pytest.mark.slow]

# How one history runs, and the share of the number that is run: one in this number.
KINDS: dict[str, tuple[Any, int]] = {
    "elastic": (elastic.run, 1),
    "elastic-references": (elastic_references.run, 10),
    "protocol": (history.run, 1),
    "groups": (groups.run, 10),
    "leader-process": (leader_process.run, 10),
    "references": (references.run, 10),
    "schema": (schema_change.run, 10),
    **{kind: (partial(shaped.run, kind), 10) for kind in shaped.KINDS},
}
SLICES = 10


@pytest.fixture(scope="module")
def pool() -> Any:
    with workers() as made:
        yield made


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("kind", KINDS)
def test_the_invariants_hold(kind: str, part: int, pool: ProcessPoolExecutor, request: pytest.FixtureRequest) -> None:
    run, share = KINDS[kind]
    number = int(request.config.getoption("--chaos-histories", 10_000)) // SLICES // share
    first = int(request.config.getoption("--chaos-first", 1_000_000)) + part * number
    found = failures(pool, run, range(first, first + number))
    assert not found, f"{len(found)} of {number} {kind} histories failed; the first:\n{found[0]}"
