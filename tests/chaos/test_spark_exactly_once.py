"""Spark's exactly once: a stream whose Python workers, executors and drivers are killed, with speculation, many times.

``SMQ_SPARK_ROUNDS`` is the number of faults, 20 by default. The source's segments split and merge meanwhile.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.spark.copying import Copying

pytestmark = pytest.mark.chaos

# Speculation and separate executors need more than local mode.
MASTER = "local-cluster[2,1,1024]"
ROWS = 600


@pytest.mark.timeout(7200)
def test_every_row_is_there_once(
    seaweed: SeaweedProcess, prefix: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chosen = request.config.getoption("--chaos-seed")
    seed = int(time.time()) if chosen is None else chosen
    rounds = int(os.environ.get("SMQ_SPARK_ROUNDS", "20"))
    dice = random.Random(seed)
    print(f"seed {seed}")
    with (
        LocalCluster(tmp_path / "cluster", seaweed.settings(prefix)) as cluster,
        Copying(cluster, tmp_path / "copying", MASTER, seed, ROWS) as copying,
    ):
        kinds: list[str] = []
        for _ in range(rounds):
            kinds = kinds or dice.sample(sorted(copying.faults), len(copying.faults))
            copying.round(kinds.pop())
        copying.finish()
        print(f"{rounds} rounds, {dict(copying.done)}, {len(copying.found)} rows once")
