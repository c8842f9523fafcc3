"""Attacks the processes of an open and of a secure release for a minute each, with another seed each time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.fuzzing.process_checks import attack
from support.processes.local_cluster import LocalCluster
from support.processes.secure_cluster import SecureCluster

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ATTACK_SECONDS = 60.0


@pytest.mark.parametrize("kind", ["open", "secure"])
def test_an_attack_leaves_a_release_as_it_was(
    kind: str, seaweed: SeaweedProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--chaos-seed", None) or time.time_ns() // 1_000_000
    print(f"--chaos-seed {seed}")
    store = seaweed.settings(f"attacked-{kind}")
    if kind == "open":
        made = LocalCluster(tmp_path, store, brokers=2, arguments=("--broker-arg=--relay=127.0.0.1:0",))
    else:
        made = SecureCluster(tmp_path, store)
    with made as cluster:
        attack(cluster, "attacked", seed=seed, seconds=ATTACK_SECONDS)
