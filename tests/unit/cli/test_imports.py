"""Commands load only the modules that they need, because Arrow alone takes longer than most commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyarrow", "numpy", "obstore", "grpc", "pydantic", "pandas", "duckdb", "yaml", "smq_core.model.entities")


def loaded(code: str) -> set[str]:
    """Which of the heavy packages are loaded after this code, in a process of its own."""
    program = f"{code}\nimport sys\nprint(*(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("code", ["import smq", "import smq.cli.app", "from smq_core.errors import SmqError"])
def test_nothing_heavy_is_loaded_before_it_is_used(code: str) -> None:
    assert loaded(code) == set()


def test_administration_needs_grpc_only() -> None:
    assert loaded("import smq\nsmq.connect('127.0.0.1:1').admin()") == {"grpc"}


def test_producers_and_consumers_load_what_they_need() -> None:
    assert {"pyarrow", "grpc"} <= loaded("import smq\nsmq.Producer, smq.Consumer, smq.aio.connect")
