"""One history of each kind, so that what a change breaks in all of them is seen without the slow tests."""

from __future__ import annotations

from importlib import import_module

import pytest

from support.sim.histories import shaped

pytestmark = pytest.mark.simulation

# The kinds that are modules. The fast tests of protocol, lease and leader_process are in other files.
MODULES = (
    "atomic",
    "elastic",
    "elastic_references",
    "groups",
    "pinned_reads",
    "references",
    "schema_change",
    "superseded",
)


@pytest.mark.parametrize("kind", [*MODULES, *shaped.KINDS])
def test_the_first_history_keeps_all_invariants(kind: str) -> None:
    failure = shaped.run(kind, 0) if kind in shaped.KINDS else import_module(f"support.sim.histories.{kind}").run(0)
    assert failure is None, f"\n{failure}"
