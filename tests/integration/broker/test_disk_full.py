"""When the filer's disk is full, acks stop before memory is used up, and the log says what to do. Space ends it."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq_proto.v1 import data_pb2 as pb
from smq_storage.chunks.chain import ChunkChain
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.raw_flight import RawProducer, rows
from support.processes.broker import BrokerProcesses, make_segment, make_topic
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

ROWS = 64
SIZE = 4096


class SmallFilesystem:
    """A separate small file system for SeaweedFS."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._mount(f"size={megabytes}m", "tmpfs", folder)

    def grow(self, megabytes: int) -> None:
        self._mount(f"remount,size={megabytes}m", folder=self.folder)

    def _mount(self, options: str, source: str = "", folder: Path | None = None) -> None:
        words = ["-t", "tmpfs", source] if source else []
        subprocess.run(["mount", "-o", options, *words, str(folder)], check=True, capture_output=True, text=True)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallFilesystem]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        small = SmallFilesystem(folder, 48)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        pytest.skip(f"a small disk is made by mounting a tmpfs, which needs root and CAP_SYS_ADMIN: {said}")
    yield small
    small.close()


@pytest.mark.slow
def test_a_full_disk_stops_acks_and_loses_nothing(disk: SmallFilesystem, tmp_path: Path):
    with SeaweedProcess(disk.folder) as seaweed:
        settings = seaweed.settings("full", timeout=3.0)
        brokers = BrokerProcesses(tmp_path, settings)
        try:
            one, two = brokers.start("b1", "b2", flags=["--memory", "32Mi"])
            topic = make_topic(flush_bytes=1 << 20)
            segment = make_segment(topic, one.replica, two.replica)
            for broker in (one, two):
                broker.open(topic, segment)
            producer = RawProducer(one.address, topic, segment)
            sent: list[list[bytes]] = []

            def send() -> None:
                sent.append([os.urandom(SIZE) for _ in range(ROWS)])
                producer.send(rows(sent[-1]))

            # Messages of 256 KB that cannot be compressed, until the disk is full.
            while not one.events("chunk.store_unavailable"):
                assert len(sent) < 400, "100 MB are on a disk of 48"
                send()
                eventually(lambda: len(sent) - 1 in producer.acked or one.events("chunk.store_unavailable"))
            failure = one.events("chunk.store_unavailable")[0]["error"]
            assert "free space" in failure, failure

            # Acks continue until the tails fill their memory, then they stop.
            feeding = threading.Thread(target=lambda: [send() for _ in range(60)], daemon=True)
            feeding.start()
            eventually(lambda: "smq_producer_waits_total 0" not in one.get("/metrics")[1])
            assert one.report(segment).state == pb.SegmentReport.OPEN

            disk.grow(512)
            feeding.join(HANG_GUARD)
            assert not feeding.is_alive(), "producers continue when there is space"
            producer.wait_acked(len(sent) - 1)
            assert one.seal(topic, segment).end == len(sent) * ROWS
            chain = ChunkChain(settings.open(), topic.name, topic.uid, segment.name)
            found = [value for info in chain.walk() if info.rows for value in _values(chain, info.first)]
            assert found == [value for batch in sent for value in batch]
        finally:
            brokers.stop()


def test_brokers_start_on_a_full_disk_of_their_journals(disk: SmallFilesystem, brokers: BrokerProcesses) -> None:
    filler = disk.folder / "filler"
    _fill(filler)
    one, two = (brokers.start(it, flags=["--journal", str(disk.folder / it)])[0] for it in ("b1", "b2"))
    topic = make_topic()

    def open_and_write(number: int) -> str:
        segment = make_segment(topic, one.replica, two.replica, number=number)
        for broker in (two, one):
            broker.open(topic, segment)
        producer = RawProducer(one.address, topic, segment)
        producer.send(rows([b"acked"]))
        producer.wait_acked(0)
        return one.status().journal_problem

    assert "1 segments continue without a journal: [Errno 28] No space left" in open_and_write(0)
    filler.unlink()
    assert "1 segments" in open_and_write(1), "the one that opened when there was space again has a journal"
    assert [it.parent.name for it in (disk.folder / "b1").rglob("*.log")] == ["t-0-1024-1"]


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


def _values(chain: ChunkChain, first: int) -> list[bytes]:
    read = chain.read(first)
    assert read is not None
    values: list[bytes] = read[1].column("value").to_pylist()
    return values
