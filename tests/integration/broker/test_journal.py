"""Brokers are killed at once while they take messages; the next processes find all acked ones in the journals."""

import os
import signal
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from smq_core.errors import SmqError
from smq_core.model.entities import Segment, Topic
from smq_storage.catalog.topics import put_topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from support.data.raw_flight import RawProducer, rows
from support.processes.broker import BrokerProcess, BrokerProcesses, make_segment, make_topic
from support.waiting import eventually

pytestmark = pytest.mark.integration

BATCH = 5


class Journaled:
    """Two brokers with a segment, each with a journal that its next process gets, too."""

    def __init__(self, brokers: BrokerProcesses, folder: Path) -> None:
        self._brokers, self.folder = brokers, folder
        self.topic: Topic = make_topic()
        self.start()
        self.segment: Segment = make_segment(self.topic, self.one.replica, self.two.replica)
        for broker in (self.one, self.two):
            broker.open(self.topic, self.segment)

    def start(self) -> None:
        self.one, self.two = (self._start(name) for name in ("b1", "b2"))

    def _start(self, name: str) -> BrokerProcess:
        flags = ["--journal", str(self.folder / name), "--leader-timeout", "0"]
        return self._brokers.start(name, flags=flags)[0]

    def seal(self, broker: BrokerProcess) -> int:
        """Lets a broker seal in place of its former process. Returns the segment's end."""
        former = next(it for it in self.segment.replicas if it.broker == broker.name)
        return broker.seal(self.topic, self.segment, incarnation=former.incarnation).end


@pytest.fixture
def journaled(brokers: BrokerProcesses, tmp_path: Path, store: Store) -> Journaled:
    made = Journaled(brokers, tmp_path / "journals")
    put_topic(store, made.topic)  # brokers drop the logs of topics that nobody knows
    return made


def values_of(sequence: int) -> list[bytes]:
    return [f"{sequence}-{number}".encode() for number in range(BATCH)]


def write_until_it_breaks(producer: RawProducer) -> None:
    try:
        while not producer.ended:
            producer.send(rows(values_of(producer.next_sequence)))
    except (pa.ArrowException, OSError):
        return


def stored_values(store: Store, journaled: Journaled) -> list[bytes]:
    topic = journaled.topic
    chain = ChunkChain(store, topic.name, topic.uid, journaled.segment.name)
    found: list[bytes] = []
    for info in chain.walk():
        if not info.sealed:
            chunk = chain.read(info.first)
            assert chunk is not None
            found += chunk[1].column("value").to_pylist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sealer", ["primary", "follower"])
def test_nothing_acked_is_lost_when_all_replicas_are_killed(journaled: Journaled, store: Store, sealer: str):
    producer = RawProducer(journaled.one.address, journaled.topic, journaled.segment)
    load = threading.Thread(target=write_until_it_breaks, args=(producer,), daemon=True)
    load.start()
    producer.wait_acked(100)
    journaled.one.flush(journaled.topic, journaled.segment)
    producer.wait_acked(max(producer.acked) + 100)
    for broker in (journaled.two, journaled.one):
        broker.kill()
    load.join()
    eventually(lambda: producer.ended)

    journaled.start()
    broker = journaled.one if sealer == "primary" else journaled.two
    assert "smq_recovered_segments 1.0" in broker.get("/metrics")[1]
    end = journaled.seal(broker)

    found = stored_values(store, journaled)
    assert len(found) == end
    for sequence, first in producer.acked.items():
        assert found[first : first + BATCH] == values_of(sequence)
    assert found == [value for sequence in range(end // BATCH) for value in values_of(sequence)], "once, in order"
    eventually(lambda: "smq_recovered_segments 0.0" in broker.get("/metrics")[1])


@pytest.mark.slow
def test_without_a_leader_a_broker_seals_what_it_recovered_before_it_ends(journaled: Journaled, store: Store):
    producer = RawProducer(journaled.one.address, journaled.topic, journaled.segment)
    producer.wait_acked(producer.send(rows([b"a", b"b"])))
    for broker in (journaled.one, journaled.two):
        broker.kill()
    journaled.start()
    journaled.one.terminate()
    assert journaled.one.wait() == 0
    assert stored_values(store, journaled) == [b"a", b"b"]
    journaled.two.terminate()
    assert journaled.two.wait() == 0


@pytest.mark.slow
def test_a_second_process_on_the_same_journal_does_not_start(journaled: Journaled, brokers: BrokerProcesses):
    (other,) = brokers.start("b1", flags=["--journal", str(journaled.folder / "b1")], wait=False)
    assert other.wait() == 2
    assert "used by another process" in other.log.read_text()


@pytest.mark.slow
def test_a_process_that_loses_its_files_ends_and_the_other_replica_has_all(journaled: Journaled, store: Store):
    producer = RawProducer(journaled.one.address, journaled.topic, journaled.segment)
    value = b"x" * 200_000
    for _ in range(3):
        producer.wait_acked(producer.send(rows([value])))
    for file in (journaled.folder / "b1").rglob("*.log"):
        os.truncate(file, 0)  # as somebody who tidies up
    with pytest.raises((pa.ArrowException, OSError, SmqError)):
        journaled.one.flush(journaled.topic, journaled.segment)
    assert journaled.one.wait() == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in journaled.one.log.read_text()
    assert journaled.two.seal(journaled.topic, journaled.segment).end == 3
    assert stored_values(store, journaled) == [value] * 3
