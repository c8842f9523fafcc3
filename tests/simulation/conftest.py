"""Options of the simulation, and the worker processes that run histories.

``pytest tests/simulation --sim-elastic 1000 --sim-first SEED`` tries 1,000 elastic histories from that seed on. Each
kind of ``KINDS`` has such an option. ``make chaos`` tries thousands of each.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.histories.parallel import COLLECT_AFTER
from support.sim.histories.parallel import workers as pool_of_workers

# For each argument of a test: the option, how many histories by default, and what they are called.
KINDS = {
    "seeds": ("--sim-seeds", 100, "protocol"),
    "elastic_seeds": ("--sim-elastic", 50, "elastic"),
    "schema_seeds": ("--sim-schema", 50, "schema"),
    "group_seeds": ("--sim-groups", 40, "group"),
    "leader_seeds": ("--sim-leader", 20, "leader-process"),
}
CHUNK = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    for option, default, kind in KINDS.values():
        group.addoption(
            option, type=int, default=default, help=f"how many {kind} histories to try (default: {default})"
        )
    group.addoption("--sim-first", type=int, default=0, help="the first seed (default: 0)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Divides the seeds among test cases: one with an argument of ``KINDS`` runs one part."""
    for name, (option, default, _) in KINDS.items():
        if name in metafunc.fixturenames:
            first = metafunc.config.getoption("--sim-first", 0)
            stop = first + metafunc.config.getoption(option, default)
            chunks = [range(at, min(at + CHUNK, stop)) for at in range(first, stop, CHUNK)]
            metafunc.parametrize(name, chunks, ids=[f"{c.start}-{c.stop - 1}" for c in chunks])


@pytest.fixture(scope="module", autouse=True)
def rare_garbage_collection() -> Iterator[None]:
    """For histories that run in this process, as in the worker processes."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECT_AFTER)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--sim-first", 0))


@pytest.fixture(scope="session")
def workers() -> Iterator[ProcessPoolExecutor]:
    with pool_of_workers() as pool:
        yield pool
