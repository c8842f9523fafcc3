"""A million malformed inputs to everything that reads what others send, on all cores.

`make test` tries ten thousand (tests/property/test_malformed_input.py). ``--chaos-inputs N`` tries more or fewer,
``--chaos-first SEED`` others. A failure prints its input.
"""

from __future__ import annotations

import math

import pytest

from support.fuzzing.campaign import PARTS, attack
from support.fuzzing.targets import MAX_GROWTH_BYTES, Outcome
from support.sim.histories.parallel import workers

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

# Of all inputs. Those of the leader take the longest, because each waits for other tasks.
SHARES = {"parsers": 0.6, "broker": 0.34, "leader": 0.06}
SLICES = 8


@pytest.mark.timeout(3600)
def test_every_input_is_answered_or_refused(request: pytest.FixtureRequest) -> None:
    inputs = int(request.config.getoption("--chaos-inputs", 1_000_000))
    first = int(request.config.getoption("--chaos-first", 1_000_000))
    totals: dict[str, Outcome] = {}
    with workers() as pool:
        for outcomes, growth in pool.map(attack, *zip(*_slices(inputs, first), strict=True)):
            assert growth < MAX_GROWTH_BYTES, f"the memory of the process grew by {growth >> 20} MiB"
            for outcome in outcomes:
                _add(totals.setdefault(outcome.target, Outcome(outcome.target)), outcome)
    print("\n".join(str(it) for it in totals.values()))
    print(f"{sum(it.inputs for it in totals.values()):,} inputs")
    assert not [str(it) for it in totals.values() if it.failures]
    assert sum(it.inputs for it in totals.values()) >= inputs


def _slices(inputs: int, first: int) -> list[tuple[str, int, int]]:
    return [(part, first + n, math.ceil(inputs * SHARES[part] / SLICES)) for part in PARTS for n in range(SLICES)]


def _add(total: Outcome, part: Outcome) -> None:
    total.inputs += part.inputs
    total.accepted += part.accepted
    total.slowest_seconds = max(total.slowest_seconds, part.slowest_seconds)
    total.failures += part.failures
