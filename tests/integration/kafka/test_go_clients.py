"""Clients of Go: an idempotent producer, and a group that reads everything. The programs are in go_clients."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from integration.kafka.clients import bootstrap
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROGRAMS = Path(__file__).parent / "go_clients"


@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_a_client_of_go(cluster: LocalCluster, tmp_path: Path, client: str) -> None:
    if os.environ.get("CI") or shutil.which("go") is None:
        pytest.skip("the programs are built with Go, which takes a minute the first time: apt install golang")
    program = tmp_path / client
    subprocess.run(["go", "build", "-o", str(program), f"./{client}"], cwd=PROGRAMS, check=True, timeout=HANG_GUARD)
    topic = f"Go_Topic.{uuid.uuid4().hex[:8]}"
    command = [str(program), bootstrap(cluster), topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_GUARD, check=False)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr
