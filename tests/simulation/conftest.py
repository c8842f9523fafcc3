"""Options of the simulation: ``--sim-seeds N`` histories, from ``--sim-first SEED`` on."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--sim-seeds", type=int, default=2000, help="how many histories to try (default: 2000)")
    group.addoption("--sim-first", type=int, default=0, help="the first seed (default: 0)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Seeds in chunks: a test with a ``seeds`` argument runs one chunk."""
    if "seeds" in metafunc.fixturenames:
        first = metafunc.config.getoption("--sim-first", 0)
        stop = first + metafunc.config.getoption("--sim-seeds", 2000)
        chunks = [range(at, min(at + 100, stop)) for at in range(first, stop, 100)]
        metafunc.parametrize("seeds", chunks, ids=[f"{c.start}-{c.stop - 1}" for c in chunks])


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--sim-first", 0))
