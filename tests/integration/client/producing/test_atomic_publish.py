"""Atomic publishes with real processes: every row once, whatever crashes between the commit and the last row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smq
from smq_core.errors import CorruptDocument, InvalidRequest, ProducerFenced
from smq_core.model.atomic_publish import AppState
from smq_storage.catalog import paths
from smq_storage.catalog.atomic_publishes import read_publishes
from smq_storage.catalog.topics import read_current
from smq_storage.object_store.store import Store
from support.data import atomic_program
from support.data.message_ledger import read_back
from support.processes.cluster_fixtures import cluster_of_module
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

__all__ = ["cluster_of_module"]

ROWS, FILES = 100, 3


def rows_of(version: int, part: int = 0) -> pa.Table:
    values = [b"%d:%d:%d" % (version, part, row) for row in range(ROWS)]
    return pa.table({"key": [b"k%d" % row for row in range(ROWS)], "value": values})


def write_files(folder: Path, version: int) -> list[Path]:
    files = [folder / f"{version}-{part}.parquet" for part in range(FILES)]
    for part, path in enumerate(files):
        pq.write_table(rows_of(version, part), path)
    return files


def all_rows(versions: Iterable[int]) -> Counter[bytes]:
    return Counter(b"%d:%d:%d" % (v, part, row) for v in versions for part in range(FILES) for row in range(ROWS))


def stored_rows(cluster: LocalCluster, topic: str, total: int) -> Counter[bytes]:
    with cluster.connect() as client, client.consumer(topic, start="earliest") as consumer:
        batches = read_back(consumer, total)
    return Counter(value for batch in batches for value in batch.table.column("value").to_pylist())


def app_state(store: Store, topic: str) -> AppState | None:
    current = read_current(store, f"default/{topic}")
    return read_publishes(store, f"default/{topic}", current[0]).app("etl") if current is not None else None


def split_widest(client: smq.Client, topic: str) -> None:
    admin = client.admin()

    def attempt() -> bool:
        segment = max(admin.segments(topic), key=lambda it: it.stop - it.start)
        admin.split(topic, segment.name)
        return True

    eventually(attempt, f"a split of {topic}")


def start_program(cluster: LocalCluster, topic: str, folder: Path, *versions: int) -> subprocess.Popen[bytes]:
    arguments = [cluster.address, topic, "etl", str(folder), *map(str, versions)]
    return subprocess.Popen(
        [sys.executable, atomic_program.__file__, *arguments],
        env=os.environ | cluster.store.to_env(),
    )


def test_a_version_is_published_once(cluster: LocalCluster, client: smq.Client, topic: str, tmp_path: Path) -> None:
    cluster.create(topic, segments={"min": 4, "max": 16})
    receipt = client.publish_atomically(topic, app="etl", version=3, files=write_files(tmp_path, 3))
    assert receipt == smq.AtomicReceipt(
        app="etl", version=3, already_published=False, rows=FILES * ROWS, last_version=3
    )
    again = client.publish_atomically(topic, app="etl", version=3, files=write_files(tmp_path, 4))
    assert again.already_published and not again.rows
    assert client.publish_atomically(topic, app="etl", version=2, table=rows_of(2)).already_published
    assert client.publish_atomically(topic, app="other", version=0, table=rows_of(0, 9)).rows == ROWS
    assert not client.publish_atomically(topic, app="etl", version=9, files=[]).already_published

    with cluster.connect() as successor:
        repeated = successor.publish_atomically(topic, app="etl", version=4, files=[])
        assert repeated.already_published and repeated.last_version == 9
        with pytest.raises(ProducerFenced, match="another owner"):
            client.publish_atomically(topic, app="etl", version=10, table=rows_of(10))
    wanted = all_rows([3]) + Counter(rows_of(0, 9).column("value").to_pylist())
    assert stored_rows(cluster, topic, wanted.total()) == wanted


def test_a_program_that_counts_up_from_the_last_version_loses_nothing(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    for batch in range(3):
        version = (client.last_version(topic, app="etl") or 0) + 1
        assert client.publish_atomically(topic, app="etl", version=version, table=rows_of(batch)).rows == ROWS
    assert client.last_version(topic, app="etl") == 3
    assert stored_rows(cluster, topic, 3 * ROWS).total() == 3 * ROWS


def test_bad_input_publishes_nothing(cluster: LocalCluster, client: smq.Client, topic: str, tmp_path: Path) -> None:
    cluster.create(topic)
    good, bad = write_files(tmp_path, 1)[0], tmp_path / "bad.parquet"
    bad.write_bytes(b"not parquet")
    for arguments in (
        {"files": [good, bad]},
        {"files": [good], "table": rows_of(1)},
        {},
        {"files": [good], "key": "x"},
    ):
        with pytest.raises(InvalidRequest):
            client.publish_atomically(topic, app="etl", version=1, **arguments)
    with pytest.raises(InvalidRequest, match="0 or more"):
        client.publish_atomically(topic, app="etl", version=-1, files=[good])
    with pytest.raises(InvalidRequest, match="name"):
        client.publish_atomically(topic, app="", version=1, files=[good])
    assert client.publish_atomically(topic, app="etl", version=1, files=[good]).rows == ROWS
    assert sum(stored_rows(cluster, topic, ROWS).values()) == ROWS


def test_a_damaged_document_of_publishes_publishes_nothing_and_is_kept(
    cluster: LocalCluster, client: smq.Client, topic: str, tmp_path: Path
) -> None:
    """Which versions are published cannot be known without it, so an administrator has to look. Producers go on."""
    cluster.create(topic)
    files = write_files(tmp_path, 1)
    assert client.publish_atomically(topic, app="etl", version=1, files=files).rows == FILES * ROWS
    store = cluster.store.open()
    document = paths.publishes(f"default/{topic}", read_current(store, f"default/{topic}")[0])
    good = store.get(document).data
    damaged = good[:-20]
    store.put(document, damaged)

    for app, version in (("etl", 1), ("etl", 2), ("other", 1)):
        with pytest.raises(CorruptDocument, match=r"_publishes\.json"):
            client.publish_atomically(topic, app=app, version=version, table=rows_of(9))
    assert store.get(document).data == damaged, "nobody replaces what it cannot read"
    with client.producer(topic) as producer:
        producer.send(b"a message").result(HANG_GUARD)
    wanted = all_rows([1]) + Counter([b"a message"])
    assert stored_rows(cluster, topic, wanted.total()) == wanted

    store.put(document, good)
    assert client.publish_atomically(topic, app="etl", version=1, files=files).already_published
    assert client.publish_atomically(topic, app="etl", version=2, files=write_files(tmp_path, 2)).rows == FILES * ROWS


@pytest.mark.slow
def test_the_leader_completes_what_a_killed_client_has_committed(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """Nothing is written at first, because the brokers are stopped. Client, leader and a broker die before anything is,
    and segments are split meanwhile."""
    cluster.create(topic, segments={"min": 2, "max": 16})
    store = cluster.store.open()
    write_files(tmp_path, 1)
    brokers = cluster.pids()
    for pid in brokers.values():
        os.kill(pid, signal.SIGSTOP)
    program = start_program(cluster, topic, tmp_path, 1)
    state = eventually(lambda: (it := app_state(store, topic)) is not None and it.unfinished is not None and it)
    program.kill()
    program.wait()
    assert {it.upload for it in state.unfinished.files} <= {
        paths.upload_name(it.path) for it in store.list(paths.UPLOADS)
    }
    cluster.kill_leader()
    cluster.start(wait=False)
    cluster.kill_broker(next(iter(brokers)))
    for pid in list(brokers.values())[1:]:
        os.kill(pid, signal.SIGCONT)
    with cluster.connect() as client:
        split_widest(client, topic)
        eventually(lambda: app_state(store, topic).unfinished is None, "the publish is complete")
        assert client.publish_atomically(topic, app="etl", version=1, table=rows_of(7)).already_published
    assert stored_rows(cluster, topic, FILES * ROWS) == all_rows([1])


@pytest.mark.slow
def test_versions_among_splits_and_killed_processes(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    cluster.create(topic, segments={"min": 2, "max": 32})
    store, versions = cluster.store.open(), range(1, 7)
    for version in versions:
        write_files(tmp_path, version)
    program = start_program(cluster, topic, tmp_path, *versions)
    for version in versions[:-1]:
        eventually(lambda v=version: (it := app_state(store, topic)) is not None and (it.version or 0) >= v)
        if version % 2:
            program.kill()
            program.wait()
            program = start_program(cluster, topic, tmp_path, *versions)
        if version == 2:
            cluster.kill_broker(sorted(cluster.pids())[0])
        with cluster.connect() as client:
            split_widest(client, topic)
    assert program.wait(HANG_GUARD) == 0
    assert stored_rows(cluster, topic, all_rows(versions).total()) == all_rows(versions)
