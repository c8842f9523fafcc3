"""A reader's process stands still, and retention removes the segment that it is in before it hears of the end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import smq
from smq_storage.seaweed import SeaweedProcess
from support.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration

EXPIRE = {"age": "1s", "unread": "Expire"}
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
        tmp_path / "cluster", seaweed.settings(prefix), arguments=("--collect-every", "100ms")
    ) as running:
        yield running


@contextmanager
def reader(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One that has read what there is, and goes on after a line."""
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


def goes_on(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGCONT)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def names(client: smq.Client, topic: str) -> list[str]:
    return [s.name for s in client.admin().segments(topic, all=True)]


@pytest.mark.parametrize("group", ["", "still"])
def test_a_reader_that_had_read_it_all_is_told_no_loss(cluster: LocalCluster, topic: str, group: str) -> None:
    cluster.create(topic, retention=EXPIRE)
    with cluster.connect() as client, client.producer(topic) as producer:
        (before,) = client.admin().segments(topic)
        producer.send(b"1").result(20)
        producer.send(b"2").result(20)
        with reader(cluster.address, topic, group, "2") as process:
            process.send_signal(signal.SIGSTOP)
            client.admin().roll(topic, before.name)
            eventually(lambda: before.name not in names(client, topic), 30, what="retention removed it")
            producer.send(b"after").result(20)
            goes_on(process)
            assert line_of(process) == "b'after'"


@pytest.mark.parametrize("group", ["", "still"])
def test_what_was_read_and_lost_with_all_replicas_is_told(cluster: LocalCluster, topic: str, group: str) -> None:
    cluster.create(topic, retention=EXPIRE, flush={"bytes": "64Mi", "interval": "1h"})
    with cluster.connect() as client, client.producer(topic) as producer:
        (before,) = client.admin().segments(topic)
        producer.send(b"1").result(20)
        producer.send(b"2").result(20)
        with reader(cluster.address, topic, group, "2") as process:
            process.send_signal(signal.SIGSTOP)
            for broker in before.brokers:
                cluster.kill_broker(broker)
            eventually(lambda: before.name not in names(client, topic), 30, what="retention removed it")
            producer.send(b"after").result(30)
            goes_on(process)
            told = {line_of(process), line_of(process)}
            assert told == {f"lost {before.name} 0 2", "b'after'"}, "the loss, and what comes behind it"
