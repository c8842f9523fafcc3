"""Many atomic publishes of 4 files over 8 segments, with kill -9 at random times and splits meanwhile: every row once.

``SMQ_ATOMIC_PUBLISHES`` is their number, 1000 by default.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smq
from smq_core.errors import SmqError
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data import atomic_program
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.chaos

FILES, ROWS = 4, 64
MAX_SEGMENTS = 24


def write_files(folder: Path, version: int) -> None:
    for part in range(FILES):
        values = [b"%d:%d:%d" % (version, part, row) for row in range(ROWS)]
        table = pa.table({"key": [b"k%d" % row for row in range(ROWS)], "value": values})
        pq.write_table(table, folder / f"{version}-{part}.parquet")


def start(cluster: LocalCluster, folder: Path, versions: range) -> subprocess.Popen[bytes]:
    arguments = [cluster.address, "t", "load", str(folder), *map(str, versions)]
    command = [sys.executable, atomic_program.__file__, *arguments]
    return subprocess.Popen(command, env=os.environ | cluster.store.to_env())


def split_or_merge(client: smq.Client) -> None:
    admin = client.admin()
    segments = admin.segments("t")
    if len(segments) >= MAX_SEGMENTS:
        admin.merge("t", [it.name for it in segments[:2]])
    else:
        admin.split("t", max(segments, key=lambda it: it.stop - it.start).name)


@pytest.mark.timeout(7200)
def test_every_row_of_every_version_is_there_once(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> None:
    versions = range(int(os.environ.get("SMQ_ATOMIC_PUBLISHES", "1000")))
    dice = random.Random(0)
    for version in versions:
        write_files(tmp_path, version)
    kills: Counter[str] = Counter()
    with LocalCluster(tmp_path / "cluster", seaweed.settings(prefix)) as cluster, cluster.connect() as client:
        cluster.create("t", segments={"min": 8, "max": 2 * MAX_SEGMENTS})
        program = start(cluster, tmp_path, versions)
        while program.poll() is None:
            time.sleep(dice.uniform(0.5, 6))
            what = dice.choice(["client", "client", "broker", "leader", "split", "split"])
            kills[what] += 1
            match what:
                case "client":
                    program.kill()
                    program.wait()
                    program = start(cluster, tmp_path, versions)
                case "broker" if cluster.pids():
                    cluster.kill_broker(dice.choice(sorted(cluster.pids())))
                case "leader":
                    cluster.kill_leader()
                    cluster.start(wait=False)
                case "split":
                    try:
                        split_or_merge(client)
                    except SmqError as error:
                        print(f"no split: {error.message}")
        assert program.returncode == 0
        with client.consumer("t", start="earliest") as consumer:
            batches = read_back(consumer, len(versions) * FILES * ROWS)
    found = Counter(value for batch in batches for value in batch.table.column("value").to_pylist())
    print(f"{len(versions)} versions, {dict(kills)}, {found.total()} rows")
    assert found == Counter(
        b"%d:%d:%d" % (version, part, row) for version in versions for part in range(FILES) for row in range(ROWS)
    )
