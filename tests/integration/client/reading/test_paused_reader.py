"""Retention removes a segment while its reader's process is paused, before the reader has its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration

SHORT_RETENTION = {"age": "1s", "unread": "Expire"}
READER = """
import sys, smq
address, topic, group, count = sys.argv[1:]
with smq.connect(address) as client, client.consumer(topic, group=group or None, start="earliest") as consumer:
    seen = 0
    while seen < int(count):
        seen += len(consumer.poll())
    print("read", flush=True)
    sys.stdin.readline()
    while True:
        try:
            print(*consumer.poll().table.column("value").to_pylist(), flush=True)
        except smq.DataLost as lost:
            print("lost", lost.segment, lost.start, lost.stop, flush=True)
"""


@pytest.fixture
def cluster(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path / "cluster", seaweed.settings(prefix), arguments=("--cleanup-interval", "100ms")
    ) as running:
        yield running


@contextmanager
def reader(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has read all messages, and continues when it gets a line."""
    with subprocess.Popen(
        [sys.executable, "-c", READER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert line_of(process) == "read"
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def resume_and_read(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGCONT)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def names(client: smq.Client, topic: str) -> list[str]:
    return [s.name for s in client.admin().segments(topic, all=True)]


@pytest.mark.slow
@pytest.mark.parametrize("group", ["", "still"])
def test_a_reader_that_had_read_everything_reports_no_loss(cluster: LocalCluster, topic: str, group: str) -> None:
    cluster.create(topic, retention=SHORT_RETENTION)
    with cluster.connect() as client, client.producer(topic) as producer:
        (before,) = client.admin().segments(topic)
        producer.send(b"1").result()
        producer.send(b"2").result()
        with reader(cluster.address, topic, group, "2") as process:
            process.send_signal(signal.SIGSTOP)
            client.admin().roll(topic, before.name)
            eventually(lambda: before.name not in names(client, topic), what="retention removed it")
            producer.send(b"after").result()
            resume_and_read(process)
            assert line_of(process) == "b'after'"


@pytest.mark.slow
@pytest.mark.parametrize("group", ["", "still"])
def test_a_loss_of_all_replicas_is_reported_after_a_pause(cluster: LocalCluster, topic: str, group: str) -> None:
    cluster.create(topic, retention=SHORT_RETENTION, flush={"bytes": "64Mi", "interval": "1h"})
    with cluster.connect() as client, client.producer(topic) as producer:
        (before,) = client.admin().segments(topic)
        producer.send(b"1").result()
        producer.send(b"2").result()
        with reader(cluster.address, topic, group, "2") as process:
            process.send_signal(signal.SIGSTOP)
            # A report of the primary gives the leader the offset below which messages were durable.
            eventually(lambda: any(s.watermark == 2 for b in client.admin().brokers() for s in b.segments))
            cluster.lose_brokers(before.brokers)
            eventually(lambda: before.name not in names(client, topic), what="retention removed it")
            producer.send(b"after").result()
            resume_and_read(process)
            lines = {line_of(process), line_of(process)}
            assert lines == {f"lost {before.name} 0 2", "b'after'"}, "the loss, and what comes behind it"
