"""Options of the simulation, and the worker processes that run histories.

``--sim-seeds N`` protocol histories and ``--sim-elastic N`` elastic ones, from ``--sim-first SEED`` on.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from support.sim.histories.parallel import workers as pool_of_workers

CHUNK = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--sim-seeds", type=int, default=800, help="how many histories to try (default: 800)")
    group.addoption("--sim-elastic", type=int, default=400, help="how many elastic histories (default: 400)")
    group.addoption("--sim-first", type=int, default=0, help="the first seed (default: 0)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Divides the seeds among test cases: one with a ``seeds`` or ``elastic_seeds`` argument runs one part."""
    for name, option, default in (("seeds", "--sim-seeds", 800), ("elastic_seeds", "--sim-elastic", 400)):
        if name in metafunc.fixturenames:
            first = metafunc.config.getoption("--sim-first", 0)
            stop = first + metafunc.config.getoption(option, default)
            chunks = [range(at, min(at + CHUNK, stop)) for at in range(first, stop, CHUNK)]
            metafunc.parametrize(name, chunks, ids=[f"{c.start}-{c.stop - 1}" for c in chunks])


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--sim-first", 0))


@pytest.fixture(scope="session")
def workers() -> Iterator[ProcessPoolExecutor]:
    with pool_of_workers() as pool:
        yield pool
