"""A release becomes a permissive one and then another one, process by process, while clients publish and read."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import smq
from smq_core.access.modes import SecurityMode
from smq_operator.local.folder import folder_id
from smq_operator.local.security.folder import SecurityFolder
from smq_storage.object_store.store import StoreSettings
from smq_storage.process.ports import free_port
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.broker import BrokerProcess
from support.processes.leader import LeaderProcess, manifest
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

DISABLED, PERMISSIVE, REQUIRED = SecurityMode
BROKERS = ("b1", "b2", "b3")
LEADER = "leader"
TOPIC, GROUP = "flights", "readers"
CLIENTS_CALLS = re.compile(r'smq_broker_open_calls_total\{call="(?:producers|tail)"\} (\S+)')


class StepwiseRelease:
    """A leader and three brokers, each of which ``restart`` ends in order and starts in another mode."""

    def __init__(self, folder: Path, store: StoreSettings) -> None:
        self.folder, self.store = folder, store
        self.leader = LeaderProcess(folder, store, brokers=0)
        folder.mkdir(parents=True, exist_ok=True)
        self._keys = SecurityFolder(folder / "security", time.time)
        self._keys.ensure(folder_id(folder))
        self._brokers: dict[str, BrokerProcess] = {}
        self.kafka_ports = {name: free_port() for name in BROKERS}

    def kafka_options(self, mode: SecurityMode) -> dict[str, Any]:
        """The same of a Kafka client."""
        addresses = {"bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.kafka_ports.values())}
        if mode is DISABLED:
            return addresses
        security = self.folder / "security"
        return addresses | {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(security / "ca.crt"),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": (security / "admin.token").read_text(),
        }

    def options(self, mode: SecurityMode) -> dict[str, Any]:
        """What a client of a release in this mode gets."""
        security = self.folder / "security"
        return {} if mode is DISABLED else {"ca_file": security / "ca.crt", "token_file": security / "admin.token"}

    def start(self, mode: SecurityMode) -> None:
        self.leader.start(f"--security={mode}")
        for name in BROKERS:
            self._start_broker(name, mode)
        self.leader.wait_for_brokers(len(BROKERS))

    def restart(self, name: str, mode: SecurityMode) -> None:
        """Returns when the new process works."""
        if name == LEADER:
            self.leader.terminate()
            self.leader.start(f"--security={mode}")
            return
        former = self._brokers[name]
        former.terminate()
        assert former.wait() == 0
        self._start_broker(name, mode)
        # As the Deployment of a chart does it: the next one ends when this one is ready.
        alive = self._brokers[name].incarnation
        eventually(lambda: self.leader.alive().get(name) == alive, what=f"{name} reports to the leader")

    def _start_broker(self, name: str, mode: SecurityMode) -> None:
        incarnation = uuid.uuid4().hex
        flags = ["--leader", self.leader.address, "--incarnation", incarnation]
        flags += ["--kafka", f"127.0.0.1:{self.kafka_ports[name]}"]
        if mode.knows_callers:
            token_file = self.folder / f"{incarnation}.token"
            token_file.write_text(self._keys.broker_tokens(lambda _: False).issue(incarnation))
            flags += ["--ca-file", str(self.folder / "security" / "ca.crt"), "--token-file", str(token_file)]
            flags += ["--permissive", "true" if mode is PERMISSIVE else "false"]
        self._brokers[name] = BrokerProcess(self.folder, name, self.store, *flags).wait_ready()

    def open_calls(self) -> float:
        """Of clients, at all brokers."""
        pages = [broker.get("/metrics")[1] for broker in self._brokers.values()]
        return sum(float(count) for page in pages for count in CLIENTS_CALLS.findall(page))

    def stop(self) -> None:
        self.leader.stop()
        for broker in self._brokers.values():
            if broker.running:
                broker.kill()


class Load:
    """One producer and one consumer of a group, with the options ``client``. ``switch`` restarts both with others."""

    def __init__(self, address: str, client: dict[str, Any]) -> None:
        self.address = address
        self.acked: list[bytes] = []
        self.read: list[bytes] = []
        self._sent = 0
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []
        self._begin(client)

    def _begin(self, client: dict[str, Any]) -> None:
        self._stop.clear()
        self._threads = [
            threading.Thread(target=self._guarded, args=(run, client)) for run in (self._publish, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, run: Callable[[smq.Client], None], options: dict[str, Any]) -> None:
        try:
            with smq.connect(self.address, timeout=HANG_GUARD, **options) as client:
                run(client)
        except BaseException as error:
            self._failures.append(error)
            raise

    def _publish(self, client: smq.Client) -> None:
        with client.producer(TOPIC, producer_id="load") as producer:
            while not self._stop.is_set():
                batch = [b"%d" % n for n in range(self._sent, self._sent + 20)]
                self._sent += len(batch)
                for delivery in [producer.send(value) for value in batch]:
                    delivery.result(HANG_GUARD)
                self.acked += batch

    def _read(self, client: smq.Client) -> None:
        with client.consumer(TOPIC, group=GROUP, start="earliest") as consumer:
            while not self._stop.is_set():
                batch = consumer.poll(0.2)
                if batch is not None:
                    self.read += batch.table.column("value").to_pylist()
                    consumer.commit()

    def progress(self) -> None:
        """Returns when something was sent and read that was not sent before."""
        sent = self._sent
        eventually(lambda: self.check() or len(self.read) > sent, what=f"more than {sent} messages read")

    def check(self) -> None:
        assert not self._failures, self._failures

    def switch(self, client: dict[str, Any]) -> None:
        self.end()
        self._begin(client)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(HANG_GUARD)
        self.check()


@pytest.fixture
def release(seaweed: SeaweedProcess, tmp_path: Path) -> Iterator[StepwiseRelease]:
    made = StepwiseRelease(tmp_path / "release", seaweed.settings(f"upgrade-{uuid.uuid4().hex[:8]}"))
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("way", "order"),
    [
        ((DISABLED, PERMISSIVE, REQUIRED), (LEADER, *BROKERS)),
        ((DISABLED, PERMISSIVE, REQUIRED), (*BROKERS, LEADER)),
        ((REQUIRED, PERMISSIVE, DISABLED), ("b1", LEADER, "b2", "b3")),
    ],
    ids=["leader-first", "leader-last", "way-back"],
)
def test_nothing_is_lost_or_doubled(
    release: StepwiseRelease, way: tuple[SecurityMode, ...], order: tuple[str, ...]
) -> None:
    first, between, last = way
    release.start(first)
    release.leader.apply(manifest(TOPIC, replicas=2, segments={"min": 2, "max": 4}))
    release.leader.wait_until_open(TOPIC)
    load = Load(release.leader.address, release.options(first))
    try:
        for name in order:
            release.restart(name, between)
            load.progress()
        load.switch(release.options(last))
        load.progress()
        before = release.open_calls()
        for name in order:
            release.restart(name, last)
            load.progress()
            assert last is DISABLED or release.open_calls() <= before, "clients call in clear text no more"
    finally:
        load.end()
    everything = [b"%d" % n for n in range(len(load.acked))]
    assert load.acked == everything
    with smq.connect(release.leader.address, timeout=HANG_GUARD, **release.options(last)) as client:
        with client.consumer(TOPIC, group=GROUP) as consumer:
            assert sorted(drained(consumer, load.read, len(everything)), key=int) == everything
        with client.consumer(TOPIC, start="earliest") as consumer:
            assert sorted(drained(consumer, [], len(everything)), key=int) == everything
    words = "speaks TLS" if last is REQUIRED else "does not speak TLS"
    former = smq.connect(release.leader.address, **release.options(first))
    with former as client, pytest.raises(smq.InvalidRequest, match=words):
        client.admin().topics()


class KafkaLoad:
    """One idempotent producer of librdkafka, with these options."""

    def __init__(self, options: dict[str, Any], begin: int = 0) -> None:
        self.acked = self._sent = begin
        self._stop = threading.Event()
        self._failures: list[confluent_kafka.KafkaError] = []
        self._producer = confluent_kafka.Producer(options | {"enable.idempotence": True})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            self._producer.produce(TOPIC, b"%d" % self._sent, b"k", on_delivery=self._delivered)
            self._sent += 1
            self._producer.poll(0)

    def _delivered(self, error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is not None:
            self._failures.append(error)
        self.acked += 1

    def progress(self) -> None:
        """Returns when something was acked that was not sent before."""
        sent = self._sent
        eventually(lambda: self.acked > sent, what=f"an ack after {sent} messages")

    def end(self) -> None:
        self._stop.set()
        self._thread.join(HANG_GUARD)
        assert self._producer.flush(HANG_GUARD) == 0 and not self._failures, self._failures


def test_kafka_clients_move_in_mode_permissive(release: StepwiseRelease) -> None:
    release.start(PERMISSIVE)
    spec = {"replicas": 2, "partitioner": "Kafka", "partitions": 4, "segments": {"min": 2, "max": 4}}
    release.leader.apply(manifest(TOPIC, **spec))
    release.leader.wait_until_open(TOPIC)
    load = KafkaLoad(release.kafka_options(DISABLED))
    try:
        load.progress()
        load.end()
        load = KafkaLoad(release.kafka_options(REQUIRED), load.acked)
        load.progress()
        for name in (LEADER, *BROKERS):
            release.restart(name, REQUIRED)
            load.progress()
    finally:
        load.end()
    with (
        smq.connect(release.leader.address, timeout=HANG_GUARD, **release.options(REQUIRED)) as client,
        client.consumer(TOPIC, start="earliest") as consumer,
    ):
        assert drained(consumer, [], load.acked) == [b"%d" % n for n in range(load.acked)]


def drained(consumer: smq.Consumer, found: list[bytes], count: int) -> list[bytes]:
    while len(found) < count:
        batch = consumer.poll(HANG_GUARD)
        assert batch is not None, f"only {len(found)} of {count} messages came"
        found += batch.table.column("value").to_pylist()
    assert consumer.poll(0.2) is None
    return found
