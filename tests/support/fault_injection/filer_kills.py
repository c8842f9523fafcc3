"""Kills the filer at random moments while a Stored segment is written, and checks what is left."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from smq_storage.chunks.chain import ChunkChain
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.raw_flight import RawProducer, rows
from support.processes.broker import BrokerProcesses, make_segment, make_topic
from support.waiting import HANG_GUARD, eventually

IN_FLIGHT = 8
LARGEST_BATCH = 2 << 20
# The longest time, in seconds, from the first ack after a restart to the next kill.
BETWEEN_KILLS = 0.3


def check_filer_kills(folder: Path, seed: int, kills: int) -> int:
    """Returns how many batches were acked. Raises AssertionError if one is lost, doubled or in another place.

    SeaweedFS starts again on the same files each time. The seed chooses batches and moments.
    """
    choice = random.Random(seed)
    with SeaweedProcess(folder / "filer") as filer:
        brokers = BrokerProcesses(folder, filer.settings("kills"))
        try:
            (broker,) = brokers.start("b1", flags=["--filer-timeout", "2"])
            topic = make_topic()
            segment = make_segment(topic, broker.replica)
            broker.open(topic, segment)
            producer = RawProducer(broker.address, topic, segment)
            writer = _Writer(producer, seed)
            try:
                for _ in range(kills):
                    _wait_for_one_more_ack(producer)
                    writer.ended.wait(choice.uniform(0, BETWEEN_KILLS))
                    filer.kill()
                    filer.start(HANG_GUARD)
                _wait_for_one_more_ack(producer)
            finally:
                sent = writer.stop()
            producer.wait_acked(sent - 1)
            outcome = broker.seal(topic, segment)
            chain = ChunkChain(filer.store("kills", timeout=HANG_GUARD), topic.name, topic.uid, segment.name)
            found = _batches(chain)
        finally:
            brokers.stop()
    assert found == list(range(sent)), f"seed {seed}: {_first_difference(found, sent)}"
    assert outcome.end == sent
    assert [producer.acked[sequence] for sequence in range(sent)] == list(range(sent)), f"seed {seed}: offsets"
    return sent


class _Writer:
    """Sends batches of one numbered row each, a few in flight, until it is stopped."""

    def __init__(self, producer: RawProducer, seed: int) -> None:
        self.ended = threading.Event()
        self._producer = producer
        self._random = random.Random(seed + 1)
        self._stop = threading.Event()
        self._sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """How many batches were sent."""
        self._stop.set()
        self._thread.join(HANG_GUARD)
        assert not self._thread.is_alive(), "the writer hangs"
        return self._sent

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                size = self._random.choice([10, 10_000, LARGEST_BATCH])
                self._producer.send(rows([b"%d:" % self._sent + self._random.randbytes(size)]))
                self._sent += 1
                with self._producer.changed:
                    self._producer.changed.wait_for(self._may_send, HANG_GUARD)
        finally:
            self.ended.set()

    def _may_send(self) -> bool:
        return self._stop.is_set() or self._producer.ended or self._sent - len(self._producer.acked) < IN_FLIGHT


def _wait_for_one_more_ack(producer: RawProducer) -> None:
    before = len(producer.acked)
    eventually(lambda: len(producer.acked) > before or producer.ended, what="one more ack")
    assert not producer.ended, f"the stream ended: {producer.error}"


def _batches(chain: ChunkChain) -> list[int]:
    """The numbers of the batches in the order of the log."""
    found = []
    for info in chain.walk():
        if info.sealed:
            continue
        chunk = chain.read(info.first)
        assert chunk is not None
        found += [int(value.split(b":", 1)[0]) for value in chunk[1].column("value").to_pylist()]
    return found


def _first_difference(found: list[int], sent: int) -> str:
    for place, number in enumerate(found):
        if number != place:
            return f"at offset {place} is batch {number}"
    return f"{len(found)} batches of {sent}"
