import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-seconds", type=float, default=float(os.environ.get("SMQ_CHAOS_SECONDS", "600")))
    parser.addoption("--chaos-seed", type=int, default=None, help="default: the clock")
