"""The authority and every certificate are replaced while messages flow, and after all of them have expired."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.kafka_socket import TlsSocket
from support.processes.secure_cluster import SecureCluster
from support.processes.short_lives import Lives
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]
# One rotation lasts for the sum of client, server and margin.
SHORT = Lives(client=6, grant=4, server=10, authority=3600, margin=2, step=0.2)
LONGEST_STALL_SECONDS = 0.3


class Load:
    """Publishes one message after the other, and keeps the times of their receipts."""

    def __init__(self, client: smq.Client, topic: str) -> None:
        self.sent = 0
        self.receipts: list[float] = []
        self._over = threading.Event()
        self._client, self._topic = client, topic
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None

    def _run(self) -> None:
        try:
            with self._client.producer(self._topic) as producer:
                while not self._over.wait(0.002):
                    producer.send(b"%d" % self.sent).result(HANG_GUARD)
                    self.sent += 1
                    self.receipts.append(time.monotonic())
        except BaseException as error:
            self._failure = error

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(HANG_GUARD)
        if self._failure is not None:
            raise self._failure

    @property
    def longest_stall(self) -> float:
        return max(b - a for a, b in zip(self.receipts, self.receipts[1:], strict=False))


@contextmanager
def running(seaweed: SeaweedProcess, folder: Path, lives: Lives) -> Iterator[SecureCluster]:
    more = ("--broker-arg=--kafka=127.0.0.1:0",)
    with SecureCluster(folder, seaweed.settings(f"rotation-{folder.name}"), lives=lives, more=more) as cluster:
        yield cluster


def authorities(client: smq.Client) -> list[tuple[str, str]]:
    return [(it.id, it.phase) for it in client.admin().authorities().authorities]


def read_all(consumer: smq.Consumer, found: list[bytes], count: int) -> None:
    while len(found) < count:
        batch = consumer.poll(HANG_GUARD)
        assert batch is not None, f"only {len(found)} of {count} messages came"
        found += batch.table.column("value").to_pylist()


def test_nothing_is_lost_doubled_or_late_while_everything_is_replaced(
    seaweed: SeaweedProcess, tmp_path: Path, topic: str
) -> None:
    with running(seaweed, tmp_path, SHORT) as cluster:
        cluster.create(topic)
        cluster.token_file("app")
        cluster.allow("app", {"topics": [topic], "verbs": ["produce", "consume"]})
        found: list[bytes] = []
        with (
            cluster.connect() as admin,
            cluster.connect_as("app") as client,
            client.consumer(topic, start="earliest") as consumer,
            Load(client, topic) as load,
        ):
            eventually(lambda: load.sent > 100)
            for _ in range(2):
                ((before, _),) = authorities(admin)
                first = cluster.ca_file.read_bytes()
                admin.admin().rotate_authority()
                phases: list[str] = []
                while phases != ["signing"] or authorities(admin)[0][0] == before:
                    phases = [phase for _, phase in authorities(admin)]
                    batch = consumer.poll(0.05)
                    found += batch.table.column("value").to_pylist() if batch is not None else []
                assert first not in cluster.ca_file.read_bytes()
                with cluster.connect_as("app") as late:
                    late.producer(topic).close()
                for name in cluster.pids():
                    address = cluster.kafka_address(name)
                    assert address is not None
                    with TlsSocket(address, cluster.ca_file.read_bytes(), "127.0.0.1") as kafka_client:
                        assert kafka_client.is_served()
        with cluster.connect_as("app") as client, client.consumer(topic, start="earliest") as again:
            stored: list[bytes] = []
            read_all(again, stored, load.sent)
        assert stored == [b"%d" % n for n in range(load.sent)]
        assert found == stored[: len(found)] and len(found) > 100
        print(f"messages {load.sent}, longest stall {load.longest_stall:.3f} s")
        assert load.longest_stall < LONGEST_STALL_SECONDS


def test_a_release_that_was_off_until_everything_had_expired_goes_on(
    seaweed: SeaweedProcess, tmp_path: Path, topic: str
) -> None:
    with running(seaweed, tmp_path, Lives(client=2, grant=2, server=4, authority=12, margin=1, step=0.2)) as cluster:
        cluster.create(topic)
        cluster.token_file("app")
        cluster.allow("app", {"topics": [topic], "verbs": ["produce", "consume"]})
        with cluster.connect_as("app") as client, client.producer(topic) as producer:
            producer.send(b"before").result(HANG_GUARD)
            with cluster.connect() as admin:
                last = max(it.expires_at for it in admin.admin().authorities().authorities)
            roots = cluster.ca_file.read_bytes()
            cluster.kill_all()
            eventually(lambda: datetime.now(UTC) > last)
            cluster.start()
            assert cluster.ca_file.read_bytes() != roots
            for message in (b"after", b"more"):
                producer.send(message).result(HANG_GUARD)
            with cluster.connect_as("app") as late, late.consumer(topic, start="earliest") as consumer:
                found: list[bytes] = []
                read_all(consumer, found, 3)
        assert found == [b"before", b"after", b"more"]
