"""Java, librdkafka and franz-go write to a topic and read it in groups, while its segments split and merge, and while
brokers are killed.

No client is restarted. At the end the log says whether anything was lost, doubled or reordered.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import smq
from integration.kafka.clients import bootstrap, read_all
from integration.kafka.steady_clients import Seen, SteadyClient, check_clients, franz, java, librdkafka
from smq_storage.process.ports import free_port
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]

PARTITIONS = 8
PER_SECOND = 200
TOPIC = "elastic"
MIN_SPLITS = MIN_MERGES = 20
BROKERS = 3
SECONDS_AFTER_KILL = 2.0
# Longest time from a send to its ack while brokers are killed.
MAX_STALL_SECONDS = 1.0


@contextmanager
def running(seaweed: SeaweedProcess, folder: Path, *more: str) -> Iterator[LocalCluster]:
    """Three brokers that serve Kafka clients, each at a port that it keeps when it is restarted."""
    first = three_ports()
    arguments = ("--broker-memory", "1Gi", "--kafka", f"127.0.0.1:{first}", *more)
    with LocalCluster(folder / "cluster", seaweed.settings(folder.name), arguments=arguments) as cluster:
        flush = {"interval": "500ms"}
        cluster.create(TOPIC, partitioner="Kafka", partitions=PARTITIONS, segments={"max": PARTITIONS}, flush=flush)
        yield cluster


def three_ports() -> int:
    """The first of three free ones, one after the other."""
    while True:
        first = free_port()
        with suppress(OSError), ExitStack() as stack:
            for port in (first + 1, first + 2):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


class Layout:
    """What administrators do to the topic's segments."""

    def __init__(self, client: smq.Client) -> None:
        self._admin = client.admin()
        self._admin.pause_scaling(TOPIC)
        self.splits = self.merges = 0

    def open(self) -> list[smq.SegmentInfo]:
        """All segments, by their partitions; nothing while one of them is not open."""
        found = sorted(self._admin.segments(TOPIC), key=lambda it: it.start)
        return found if all(it.phase == "open" for it in found) else []

    def change(self, draw: random.Random) -> None:
        """Splits a segment, or merges two neighbours. Returns when the successors are open."""
        before = eventually(self.open, what="all segments are open")
        wide = [it for it in before if it.stop - it.start > 1]
        names = {it.name for it in before}
        if wide and (len(before) == 1 or draw.random() < 0.5):
            chosen = draw.choice(wide)
            self._admin.split(TOPIC, chosen.name, at=draw.randrange(chosen.start + 1, chosen.stop))
            self.splits += 1
        else:
            at = draw.randrange(len(before) - 1)
            self._admin.merge(TOPIC, [it.name for it in before[at : at + 2]])
            self.merges += 1
        eventually(lambda: (found := self.open()) and {it.name for it in found} != names, what="successors are open")


def start(
    cluster: LocalCluster, folder: Path, stack: ExitStack, programs: dict[str, list[str]], *, groups: bool
) -> list[SteadyClient]:
    clients = []
    for name, command in programs.items():
        words = [bootstrap(cluster), TOPIC, name, str(PER_SECOND), f"group-{name}" if groups else ""]
        client = SteadyClient(name, [*command, *words], folder / f"{name}.log", has_group=groups)
        stack.callback(client.kill)
        clients.append(client)
    for client in clients:
        eventually(lambda client=client: len(client.acked) > PER_SECOND, what=f"{client.name} writes")  # type: ignore[misc]
    return clients


def finish(cluster: LocalCluster, clients: list[SteadyClient]) -> list[Seen]:
    """Ends the clients, when their groups have read everything, and checks what they have seen against the log."""
    for client in clients:
        assert client.is_running, f"{client.name} has ended"
        client.stop_producing()
    count = sum(len(it.acked) for it in clients)
    for client in clients:
        if client.has_group:
            eventually(lambda client=client: len(client.read) >= count, what=f"{client.name} has read everything")  # type: ignore[misc]
    for client in clients:
        client.end()
    found = read_all(cluster, TOPIC, count)
    log = [
        (it.key().decode(), it.value().decode(), it.partition(), it.offset())
        for _, messages in sorted(found.items())
        for it in messages
    ]
    check_clients(clients, log)
    return log


class Stalls:
    """The longest time from a send of one client to its ack, after each kill."""

    def __init__(self, client: SteadyClient) -> None:
        self.micros: list[int] = []
        self._client = client
        self._acked = 0

    def begin(self) -> None:
        self._acked = len(self._client.micros)

    def end(self) -> None:
        """Returns when what waited is acked."""
        client = self._client
        now = len(client.micros)
        eventually(lambda: len(client.micros) > now + PER_SECOND // 10, what=f"{client.name} writes again")
        self.micros.append(max(client.micros[self._acked :]))


def show(clients: list[SteadyClient]) -> None:
    for it in clients:
        number, slowest = max(enumerate(it.micros), key=lambda one: one[1])
        print(
            f"  {it.name}: {len(it.acked):,} acked, {len(it.read):,} read, "
            f"the slowest ack after {slowest // 1000} ms, that of {it.acked[number][1]}"
        )


def test_a_topic_splits_and_merges_under_clients_of_three_languages(
    request: pytest.FixtureRequest, seaweed: SeaweedProcess, tmp_path: Path
) -> None:
    seed = request.config.getoption("--chaos-seed")
    draw = random.Random(int(time.time()) if seed is None else seed)
    programs = {"java": java(), "librdkafka": librdkafka(), "franz": franz(tmp_path)}
    with running(seaweed, tmp_path) as cluster, cluster.connect() as client, ExitStack() as stack:
        clients = start(cluster, tmp_path, stack, programs, groups=True)
        layout = Layout(client)
        while layout.splits < MIN_SPLITS or layout.merges < MIN_MERGES:
            layout.change(draw)
        log = finish(cluster, clients)
        print(f"\n{layout.splits} splits, {layout.merges} merges, {len(log):,} messages in {PARTITIONS} partitions")
        show(clients)


@pytest.mark.parametrize("journal", ["with a journal", "without a journal"])
def test_brokers_are_killed_under_idempotent_producers(
    journal: str, request: pytest.FixtureRequest, seaweed: SeaweedProcess, tmp_path: Path
) -> None:
    """One after the other, each when all brokers are there again."""
    seed = request.config.getoption("--chaos-seed")
    kills = request.config.getoption("--chaos-kills")
    draw = random.Random(int(time.time()) if seed is None else seed)
    more = () if journal == "with a journal" else ("--no-journal",)
    programs = {"java": java(), "librdkafka": librdkafka()}
    with running(seaweed, tmp_path, *more) as cluster, cluster.connect() as client, ExitStack() as stack:
        clients = start(cluster, tmp_path, stack, programs, groups=False)
        layout, admin = Layout(client), client.admin()
        stalls = {it.name: Stalls(it) for it in clients}

        def is_whole() -> bool:
            alive = [it for it in admin.brokers() if it.state == "alive"]
            return len(alive) == BROKERS and bool(layout.open())

        for _ in range(kills):
            eventually(is_whole, what="all brokers are there, and all segments open")
            for it in stalls.values():
                it.begin()
            cluster.kill_broker(draw.choice(sorted(cluster.pids())))
            time.sleep(SECONDS_AFTER_KILL)
            for it in stalls.values():
                it.end()
        log = finish(cluster, clients)
        print(f"\n{kills} kills {journal}, {len(log):,} messages")
        show(clients)
        for name, found in stalls.items():
            milliseconds = sorted(it // 1000 for it in found.micros)
            print(f"  {name}: median {milliseconds[kills // 2]} ms, the longest {milliseconds[-8:]} ms")
        assert max(max(it.micros) for it in stalls.values()) < MAX_STALL_SECONDS * 1e6
