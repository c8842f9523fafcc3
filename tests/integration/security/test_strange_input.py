"""Strangers' bytes, and requests of a client that may do little: the processes go on, and their logs stay in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.fuzzing.process_checks import attack
from support.processes.local_cluster import LocalCluster
from support.processes.secure_cluster import SecureCluster

pytestmark = pytest.mark.integration

ATTACK_SECONDS = 2.5


def test_an_attack_leaves_a_secure_release_as_it_was(cluster: SecureCluster, topic: str) -> None:
    attack(cluster, topic, seed=1, seconds=ATTACK_SECONDS)


@pytest.mark.slow
def test_an_attack_leaves_an_open_release_as_it_was(seaweed: SeaweedProcess, tmp_path: Path, topic: str) -> None:
    arguments = ("--broker-arg=--relay=127.0.0.1:0",)
    with LocalCluster(tmp_path, seaweed.settings("attacked"), brokers=2, arguments=arguments) as cluster:
        attack(cluster, topic, seed=1, seconds=ATTACK_SECONDS)
