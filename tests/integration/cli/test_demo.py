"""Runs `make demo` without a terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes.cli import environment
from support.spark.java import find_java

pytestmark = [pytest.mark.integration, pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_demo_ends_with_every_count_right() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=540,
        env=environment(),
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kill -9") == 2
    for decision in ("split  ", "scale out  2 to", "failover  ", "merge  ", "to 2 brokers"):
        assert decision in done.stdout, done.stdout
    assert re.search("at most [4-8] segments, [34] brokers", done.stdout), done.stdout
    assert "all counts are right" in done.stdout and "wrong" not in done.stdout
    if find_java() is not None:
        assert "Spark's stream" in done.stdout
