import os

import pytest

from support.processes.seaweed import prefix, seaweed

__all__ = ["prefix", "seaweed"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-seconds", type=float, default=float(os.environ.get("SMQ_CHAOS_SECONDS", "600")))
    parser.addoption("--chaos-seed", type=int, default=None, help="default: the clock")
    parser.addoption("--chaos-histories", type=int, default=10_000, help="simulated histories of each kind")
    parser.addoption("--chaos-inputs", type=int, default=1_000_000, help="malformed inputs")
    parser.addoption("--chaos-kills", type=int, default=50, help="kills of brokers under Kafka clients")
    parser.addoption("--chaos-first", type=int, default=1_000_000, help="the first seed of simulated histories")
