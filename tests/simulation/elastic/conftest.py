"""``--elastic-seed N``: the seed of the runs (default: 7)."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("simulation").addoption("--elastic-seed", type=int, default=7, help="seed of the elastic runs")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--elastic-seed", 7))
