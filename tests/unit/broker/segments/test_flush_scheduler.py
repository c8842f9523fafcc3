"""Full chunks wait for the end of a burst, unless memory or credit is short."""

from pathlib import Path

import pytest

from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Payload
from smq_broker.runtime.clock import Clock
from smq_broker.runtime.pauses import PauseCounter
from smq_broker.segments import flush_scheduling
from smq_broker.segments.flush_scheduling import CpuPressure, is_burst
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import open_store
from support.processes.broker import make_segment, make_topic

CHUNK = 1000


def test_cores_are_short_when_threads_waited_for_half_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "cpu"
    monkeypatch.setattr(flush_scheduling, "PRESSURE_FILES", (tmp_path / "absent", file))

    def write_pressure(micros: int) -> None:
        file.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\nfull avg10=0.00 total=0\n")

    write_pressure(5_000_000)
    cores = CpuPressure()
    cores.poll(100.0)
    write_pressure(5_040_000)
    assert not cores.poll(100.1)
    write_pressure(5_100_000)
    assert cores.poll(100.2)
    file.unlink()
    assert not cores.poll(100.3)


def test_without_pressure_statistics_cores_are_never_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flush_scheduling, "PRESSURE_FILES", (tmp_path / "absent",))
    cores = CpuPressure()
    assert not any(cores.poll(now) for now in (1.0, 2.0, 3.0))


def test_a_burst_brings_a_chunk_a_second():
    assert is_burst(100, 0.1, 1000)
    assert not is_burst(99, 0.1, 1000)


class PrimaryBench:
    """A primary whose follower acks everything at once."""

    def __init__(self, credit: int) -> None:
        topic = make_topic(flush_bytes=CHUNK)
        segment = make_segment(topic, Replica("b1", "me", "x:1"), Replica("b2", "f", "x:2"))
        self.flushes = 0
        chain = ChunkChain(open_store("memory://"), topic.name, topic.uid, segment.name)
        self.hosted = HostedSegment(
            topic=topic,
            segment=segment,
            incarnation="me",
            chain=chain,
            memory=MemoryAccounting(1 << 30),
            clock=Clock(),
            pauses=PauseCounter(lambda: 0.0),
            on_chunk_due=self._count_flush,
            on_change=lambda: None,
        )
        self.number = 0
        with self.hosted as machine:
            machine.follower_connected("f", 0, credit)

    def _count_flush(self, _: HostedSegment) -> None:
        self.flushes += 1
        self.hosted.flush_schedule.queued = False

    def append(self, nbytes: int) -> None:
        id_ = BatchId("p", 0, self.number)
        self.number += 1
        with self.hosted as machine:
            machine.append(
                self,
                IncomingBatch(
                    id=id_,
                    rows=1,
                    nbytes=nbytes,
                    partition_min=0,
                    partition_max=0,
                    payload=Payload(ArrowBlock(self.hosted.wire.empty)),
                ),
                now=0,
            )
            machine.follower_acked("f", machine.end)

    def acked(self, acks: object) -> None: ...

    def wake(self) -> None: ...

    def poll(self, now: float, may_defer: bool) -> None:
        with self.hosted:
            self.hosted.flush_schedule.update_burst(now, may_defer)


def test_full_chunks_wait_in_a_burst_and_are_written_after_it():
    bench = PrimaryBench(credit=100 * CHUNK)
    bench.poll(1.0, may_defer=True)
    bench.append(CHUNK - 1)
    bench.poll(1.1, may_defer=True)
    for _ in range(5):
        bench.append(CHUNK)
    assert bench.hosted.flush_schedule.burst and not bench.flushes
    bench.poll(20.0, may_defer=True)
    assert bench.flushes == 1, "the burst is over"


def test_a_burst_that_comes_in_jerks_is_one():
    bench = PrimaryBench(credit=100 * CHUNK)
    bench.poll(1.0, may_defer=True)
    for tenth in range(11, 31):
        if tenth % 3 == 0:
            bench.append(CHUNK // 2)
        bench.poll(tenth / 10, may_defer=True)
    assert bench.hosted.machine.tail_bytes >= 3 * CHUNK and not bench.flushes
    for tenth in range(31, 45):
        bench.poll(tenth / 10, may_defer=True)
    assert bench.flushes, "no message for more than a second"


def test_a_burst_does_not_wait_when_memory_or_credit_is_short():
    bench = PrimaryBench(credit=10 * CHUNK)
    bench.poll(1.0, may_defer=True)
    bench.append(CHUNK - 1)
    bench.poll(1.1, may_defer=True)
    bench.append(4 * CHUNK)
    assert not bench.flushes
    bench.append(CHUNK)
    assert bench.flushes == 1, "half of the credit is used"

    pressed = PrimaryBench(credit=100 * CHUNK)
    pressed.poll(1.0, may_defer=True)
    pressed.append(CHUNK - 1)
    pressed.poll(1.1, may_defer=False)
    pressed.append(1)
    assert pressed.flushes == 1


def test_a_requested_flush_does_not_wait():
    bench = PrimaryBench(credit=100 * CHUNK)
    bench.poll(1.0, may_defer=True)
    bench.append(CHUNK)
    bench.poll(1.1, may_defer=True)
    flushes = bench.flushes
    with bench.hosted:
        bench.hosted.flush_schedule.request(bench.hosted.machine.end)
    assert bench.flushes > flushes
