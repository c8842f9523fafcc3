"""Measures how a broker recovers a journal: it scans the files when it starts, and decodes a segment when it is sealed.

``python -m benchmarks.recovery`` writes journals of 1 GiB, with records of several sizes, into a temporary folder. A
record is one replication message: each small batch of a producer has its own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from smq_broker.journal.disk_activity import DiskActivity  # noqa: E402
from smq_broker.journal.folder import FormerIncarnation, JournalFolder  # noqa: E402
from smq_broker.journal.journal_metrics import JournalMetrics  # noqa: E402
from smq_broker.recovery.recovered_segment import RecoveredSegment  # noqa: E402
from smq_broker.runtime.clock import Clock  # noqa: E402
from smq_core.model.entities import Durability, Phase, Replica, Segment, Topic, TopicSpec  # noqa: E402
from smq_core.model.keyspace import KeyRange  # noqa: E402
from smq_proto.v1 import data_pb2 as pb  # noqa: E402
from smq_proto.wire import segment_to_pb, topic_to_pb  # noqa: E402
from smq_storage.chunks.chain import ChunkChain  # noqa: E402
from smq_storage.object_store.store import StoreSettings  # noqa: E402
from support.data.raw_flight import rows  # noqa: E402

VALUE_BYTES = 200
SEGMENTS = 16
RECORD_BYTES = (1_000, 10_000, 100_000, 1_000_000)
TARGET_SECONDS = 10.0
# The incarnation that was killed.
FORMER = "former"
TOPIC = Topic("default/recovery", "uid", TopicSpec(partitions=SEGMENTS))


def segment(number: int) -> Segment:
    return Segment(
        name=f"r-{number}-{number + 1}-{number}",
        number=number,
        range=KeyRange(number, number + 1),
        phase=Phase.OPEN,
        durability=Durability.REPLICATED,
        replicas=(Replica("b", FORMER, ""),),
    )


def locked_journal(folder: Path, incarnation: str) -> JournalFolder:
    disk = DiskActivity()
    journal = JournalFolder(
        folder=folder, incarnation=incarnation, root="memory://", meter=JournalMetrics(disk), activity=disk
    )
    journal.lock()
    return journal


def write(folder: Path, total_bytes: int, record_bytes: int) -> None:
    """What a process leaves that is killed with ``total_bytes`` of rows in ``SEGMENTS`` segments."""
    journal = locked_journal(folder, FORMER)
    journal.begin()
    batch = rows([b"x" * VALUE_BYTES] * max(1, record_bytes // VALUE_BYTES))
    for number in range(SEGMENTS):
        one = journal.segment(pb.OpenSegment(topic=topic_to_pb(TOPIC), segment=segment_to_pb(segment(number))))
        one.create()
        end = 0
        for sequence in range(total_bytes // SEGMENTS // record_bytes):
            entry = pb.ReplicationBatch.Entry(producer="p", epoch=1, sequence=sequence, rows=batch.num_rows, appended=1)
            header = pb.ReplicationBatch(base_offset=end, entries=[entry], watermark=end)
            one.append(end, end + batch.num_rows, header.SerializeToString(), batch)
            end += batch.num_rows
        one.close()
    journal.unlock()


def scan(folder: Path) -> FormerIncarnation:
    journal = locked_journal(folder, "next")
    (former,) = journal.recover()
    journal.unlock()
    return former


def decode(former: FormerIncarnation) -> int:
    """Decodes all segments as their seals do. Returns the messages."""
    store = StoreSettings(url="memory://recovery").open()
    messages = 0
    for number, log in enumerate(sorted(former.logs, key=lambda it: it.opened.segment.number)):
        assert log.complete, log.problem
        chain = ChunkChain(store, TOPIC.name, TOPIC.uid, segment(number).name)
        hosted = RecoveredSegment(
            incarnation=former.incarnation, topic=TOPIC, segment=segment(number), log=log, chain=chain, clock=Clock()
        )
        hosted.begin_seal().close()
        hosted.release()
        messages += log.end
    return messages


def measure(total_bytes: int, record_bytes: int) -> float:
    """Prints one line. Returns the seconds."""
    with tempfile.TemporaryDirectory(prefix="smq-recovery-") as name:
        folder = Path(name) / "journal"
        write(folder, total_bytes, record_bytes)
        started = time.perf_counter()
        former = scan(folder)
        scanned = time.perf_counter()
        messages = decode(former)
        decoded = time.perf_counter()
        size = sum(log.size for log in former.logs)
    seconds = decoded - started
    print(
        f"{record_bytes:9,} B per record {size / 1e6:8.0f} MB {messages:10,} messages  "
        f"scan {scanned - started:6.2f} s  decode {decoded - scanned:6.2f} s  total {seconds:6.2f} s",
        flush=True,
    )
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=1024, help="of rows")
    parser.add_argument("--record-bytes", type=int, nargs="*", default=RECORD_BYTES)
    given = parser.parse_args()
    seconds = [measure(given.mebibytes << 20, record_bytes) for record_bytes in given.record_bytes]
    print(f"the slowest took {max(seconds):.1f} s (target {TARGET_SECONDS:.0f})")
    return 0 if max(seconds) <= TARGET_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
