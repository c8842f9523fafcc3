"""Shows that the simulation detects a broken rule: its mutation makes some history fail that passes without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulation.mutations.first_seeds import FIRST_SEEDS
from simulation.mutations.mutation_table import BreakRule, MutationTable

Run = Callable[[int], object]


def rules(run: Run, within: int, *tables: MutationTable) -> list[Any]:
    """Each mutation with the histories that detect it, and how many of them are tried: parameters of a test."""
    return [pytest.param(rule, run, within, id=name) for table in tables for name, rule in table.items()]


def check_detected(rule: BreakRule, run: Run, within: int) -> None:
    """Raises AssertionError unless one of that number of histories detects it."""
    first = FIRST_SEEDS.get(rule.__name__, 0)
    with pytest.MonkeyPatch.context() as patch:
        rule(patch)
        caught = next((seed for seed in range(first, first + within) if run(seed)), None)
    assert caught is not None, f"{within} histories from {first} on passed although this is broken: {rule.__doc__}"
    failure = run(caught)
    assert failure is None, f"the history fails without the mutation too: {failure}"
