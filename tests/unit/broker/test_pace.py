"""When full chunks wait for the end of a burst."""

from pathlib import Path

import pytest

from smq_broker import pace
from smq_broker.clock import Clock
from smq_broker.held import Held
from smq_broker.memory import Memory
from smq_broker.pace import Cores, is_burst
from smq_broker.payloads import Payload
from smq_core.entries import Incoming
from smq_core.model import Replica
from smq_core.producers import BatchId
from smq_storage.chain import Chain
from smq_storage.store import open_store
from support.broker_process import make_segment, make_topic

CHUNK = 1000


def test_cores_are_short_when_threads_waited_for_half_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "cpu"
    monkeypatch.setattr(pace, "PRESSURES", (tmp_path / "absent", file))

    def told(micros: int) -> None:
        file.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\nfull avg10=0.00 total=0\n")

    told(5_000_000)
    cores = Cores()
    cores.look(100.0)
    told(5_040_000)
    assert not cores.look(100.1)
    told(5_100_000)
    assert cores.look(100.2)
    file.unlink()
    assert not cores.look(100.3)


def test_where_the_system_does_not_tell_cores_are_never_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pace, "PRESSURES", (tmp_path / "absent",))
    cores = Cores()
    assert not any(cores.look(now) for now in (1.0, 2.0, 3.0))


def test_a_burst_brings_a_chunk_a_second():
    assert is_burst(100, 0.1, 1000)
    assert not is_burst(99, 0.1, 1000)


class Bench:
    """A primary whose follower takes everything at once."""

    def __init__(self, credit: int) -> None:
        topic = make_topic(flush_bytes=CHUNK)
        segment = make_segment(topic, Replica("b1", "me", "x:1"), Replica("b2", "f", "x:2"))
        self.kicked = 0
        chain = Chain(open_store("memory://"), topic.name, topic.uid, segment.name)
        self.held = Held(
            topic, segment, "me", chain, Memory(1 << 30), Clock(), wants_flush=self._kick, has_news=lambda: None
        )
        self.number = 0
        with self.held as machine:
            machine.follower_connected("f", 0, credit)

    def _kick(self, _: Held) -> None:
        self.kicked += 1
        self.held.flush_queued = False

    def append(self, nbytes: int) -> None:
        id_ = BatchId("p", 0, self.number)
        self.number += 1
        with self.held as machine:
            machine.append(self, Incoming(id_, 1, nbytes, 0, 0, Payload(self.held.wire.empty)), now=0)
            machine.follower_acked("f", machine.end)

    def acked(self, acks: object) -> None: ...

    def wake(self) -> None: ...

    def look(self, now: float, may_wait: bool) -> None:
        with self.held:
            self.held.look_at_pace(now, may_wait)


def test_full_chunks_wait_in_a_burst_and_are_written_after_it():
    bench = Bench(credit=100 * CHUNK)
    bench.look(1.0, may_wait=True)
    bench.append(CHUNK - 1)
    bench.look(1.1, may_wait=True)
    for _ in range(5):
        bench.append(CHUNK)
    assert bench.held.burst and not bench.kicked
    bench.look(20.0, may_wait=True)
    assert bench.kicked == 1, "nearly nothing came since"


def test_a_burst_that_comes_in_jerks_is_one():
    bench = Bench(credit=100 * CHUNK)
    bench.look(1.0, may_wait=True)
    for tenth in range(11, 31):
        if tenth % 3 == 0:
            bench.append(CHUNK // 2)
        bench.look(tenth / 10, may_wait=True)
    assert bench.held.machine.tail_bytes >= 3 * CHUNK and not bench.kicked
    for tenth in range(31, 45):
        bench.look(tenth / 10, may_wait=True)
    assert bench.kicked, "nothing came for more than a second"


def test_a_burst_does_not_wait_when_memory_or_credit_is_short():
    bench = Bench(credit=10 * CHUNK)
    bench.look(1.0, may_wait=True)
    bench.append(CHUNK - 1)
    bench.look(1.1, may_wait=True)
    bench.append(4 * CHUNK)
    assert not bench.kicked
    bench.append(CHUNK)
    assert bench.kicked == 1, "half of the credit is used"

    pressed = Bench(credit=100 * CHUNK)
    pressed.look(1.0, may_wait=True)
    pressed.append(CHUNK - 1)
    pressed.look(1.1, may_wait=False)
    pressed.append(1)
    assert pressed.kicked == 1


def test_what_was_asked_for_does_not_wait():
    bench = Bench(credit=100 * CHUNK)
    bench.look(1.0, may_wait=True)
    bench.append(CHUNK)
    bench.look(1.1, may_wait=True)
    kicked = bench.kicked
    with bench.held:
        bench.held.ask_flush(bench.held.machine.end)
    assert bench.kicked > kicked
