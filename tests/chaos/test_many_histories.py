"""The simulation at length: 10,000 elastic histories and 10,000 of the protocol, none of them among `make test`'s.

``--chaos-first SEED`` tries others, ``--chaos-histories N`` more or fewer. A failure prints its seed, its story and the
command that shows it again.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from support.sim import elastic, history
from support.sim.many import failures, workers

pytestmark = [pytest.mark.chaos, pytest.mark.simulation, pytest.mark.slow]

KINDS: dict[str, Any] = {"elastic": elastic.run, "protocol": history.run}
SLICES = 10


@pytest.fixture(scope="module")
def pool() -> Any:
    with workers() as made:
        yield made


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("kind", KINDS)
def test_the_invariants_hold(kind: str, part: int, pool: ProcessPoolExecutor, request: pytest.FixtureRequest) -> None:
    number = int(request.config.getoption("--chaos-histories", 10_000)) // SLICES
    first = int(request.config.getoption("--chaos-first", 1_000_000)) + part * number
    found = failures(pool, KINDS[kind], range(first, first + number))
    assert not found, f"{len(found)} of {number} {kind} histories failed; the first:\n{found[0]}"
