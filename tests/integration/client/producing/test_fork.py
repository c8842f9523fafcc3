"""A program that uses a client may start others by fork(), as Spark's launcher does."""

from __future__ import annotations

import subprocess
import sys

import pytest

import smq
from support.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

PROGRAM = """
import subprocess, sys, smq

with smq.connect(sys.argv[1]) as client:
    client.admin().brokers()
    # With preexec_fn Python uses fork(), not vfork().
    codes = [subprocess.run(["true"], preexec_fn=lambda: None).returncode for _ in range(200)]
    print(sorted(set(codes)), "alive" in {broker.state for broker in client.admin().brokers()})
"""


def test_programs_that_are_started_by_fork_run(cluster: LocalCluster, client: smq.Client) -> None:
    assert client.admin().brokers(), "there is somebody to connect to"
    ran = subprocess.run([sys.executable, "-c", PROGRAM, cluster.address], capture_output=True, text=True)
    assert ran.stdout == "[0] True\n", ran.stderr[-3000:]
