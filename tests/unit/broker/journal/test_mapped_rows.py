"""The journal's files are the memory of a tail: rows are read from there, and no file is used again too early."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from smq_broker.journal.disk_activity import DiskActivity
from smq_broker.journal.file_writer import FileWriter
from smq_broker.journal.journal_files import first_offset
from smq_broker.journal.journal_metrics import JournalMetrics
from smq_broker.journal.mapped_file import WINDOW_BYTES, MappedFile
from smq_broker.journal.recycled_files import RecycledFiles
from smq_broker.journal.segment_journal import MAP_FROM_BYTES, SegmentJournal
from smq_broker.rows.payloads import Payload
from smq_broker.segments.hosted_segment import HostedSegment
from smq_proto.v1 import data_pb2 as pb
from support.data.raw_flight import rows
from support.in_memory.journaled_brokers import JournaledBrokers
from support.in_memory.process_journal import NoProcessJournal
from support.waiting import eventually

SCHEMA = rows([b"x"]).schema
MEMORY = 16 * 2**20


class Journal:
    """The journal of one segment, with a file for each record."""

    def __init__(self, folder: Path) -> None:
        meter = JournalMetrics(DiskActivity())
        self.recycled = RecycledFiles(folder / "recycled", meter.resized)
        self.files = SegmentJournal(
            folder=folder / "i" / "u" / "s",
            opened=pb.OpenSegment(segment=pb.Segment(name="s"), topic=pb.TopicInfo(uid="u")),
            meter=meter,
            recycled=self.recycled,
            writer=FileWriter(),
            activity=DiskActivity(),
            process=NoProcessJournal(),
            file_bytes=1,
        )
        self.end = 0

    def append(self, value: bytes) -> pa.Buffer | None:
        header = pb.ReplicationBatch(base_offset=self.end, watermark=self.end)
        self.end += 1
        return self.files.append(self.end - 1, self.end, header.SerializeToString(), rows([value]))

    def overwrite(self) -> None:
        """Appends as many records as there are files to use again."""
        for number in range(4):
            self.append(value_of(100 + number))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def value_of(number: int) -> bytes:
    return b"%3d " % number * 500_000


def read(buffer: pa.Buffer | None) -> bytes:
    assert buffer is not None
    (value,) = pa.ipc.read_record_batch(buffer, SCHEMA).column("value").to_pylist()
    assert isinstance(value, bytes)
    return value


def is_mapped(buffer: pa.Buffer, name: str = ".log") -> bool:
    """Whether this memory is a part of such a file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, stop = (int(it, 16) for it in line.split()[0].split("-"))
        if first <= buffer.address < stop:
            return line.endswith(name)
    raise AssertionError("this memory is not the process's")


def test_large_rows_are_read_from_the_file(journal: Journal) -> None:
    buffer = journal.append(value_of(1))
    assert buffer is not None and is_mapped(buffer)
    assert read(buffer) == value_of(1)


def test_small_rows_are_not_mapped(journal: Journal) -> None:
    assert journal.append(b"x" * (MAP_FROM_BYTES // 2)) is None


def test_a_file_is_not_used_again_while_its_rows_may_be_read(journal: Journal) -> None:
    held = [journal.append(value_of(number)) for number in range(3)]
    journal.files.trim(2)
    journal.overwrite()
    assert [read(it) for it in held] == [value_of(number) for number in range(3)]


def test_a_file_is_used_again_when_nobody_reads_its_rows_any_more(journal: Journal) -> None:
    held = [journal.append(value_of(number)) for number in range(2)]
    journal.files.trim(1)
    assert journal.recycled.take() is None
    held.clear()
    taken = journal.recycled.take()
    assert taken is not None
    os.close(taken.fd)


def test_the_last_file_is_not_cut_off_while_its_rows_may_be_read(journal: Journal) -> None:
    held = journal.append(value_of(1))
    journal.files.trim(1)
    (file,) = (path for path in journal.files.folder.iterdir() if first_offset(path) is not None)
    assert first_offset(file) == 1, "the segment continues in another file"
    journal.overwrite()
    assert read(held) == value_of(1)


def test_files_of_a_sealed_segment_stay_while_their_rows_may_be_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    held = journal.append(value_of(1))
    journal.files.remove()
    assert journal.recycled.take() is None
    assert read(held) == value_of(1)


def test_a_mapping_ends_with_its_last_buffer(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"0123456789" * WINDOW_BYTES)
    file = MappedFile()
    with path.open("rb") as opened:
        places = (3, WINDOW_BYTES - 2, 3 * WINDOW_BYTES + 1)
        buffers = [file.read(opened.fileno(), at, 10) for at in places]
    assert [it.to_pybytes() for it in buffers] == [path.read_bytes()[at : at + 10] for at in places]
    assert file.in_use()
    buffers.pop()
    assert file.in_use()
    buffers.clear()
    assert not file.in_use()
    assert str(path) not in Path("/proc/self/maps").read_text()


def payloads(hosted: HostedSegment) -> list[Payload]:
    with hosted.lock:
        return [entry.batch.payload for entry in hosted.machine.tail if isinstance(entry.batch.payload, Payload)]


def values_buffer(payload: Payload) -> pa.Buffer:
    return payload.location[0].to_arrow().column("value").buffers()[2]


@pytest.mark.parametrize("number", [0, 1])
def test_the_tail_of_a_replica_has_large_rows_in_its_journal_only(tmp_path: Path, number: int) -> None:
    brokers = JournaledBrokers(tmp_path)
    values = [value_of(number)[:200_000] for number in range(3)]
    brokers.write(values)
    hosted = brokers.brokers[number].hosted(brokers.topic, brokers.segment)
    eventually(lambda: all(is_mapped(values_buffer(it)) for it in payloads(hosted)), "the received memory is free")
    assert len(payloads(hosted)) == len(values)
    brokers.flush()
    assert brokers.stored_values() == values


def test_producers_go_on_beyond_the_memory_while_the_filer_takes_nothing(tmp_path: Path) -> None:
    brokers = JournaledBrokers(tmp_path, memory=MEMORY)
    values = [value_of(number)[:200_000] for number in range(MEMORY // 200_000 * 2)]
    brokers.write(values)
    primary = brokers.brokers[0].hosted(brokers.topic, brokers.segment)
    assert primary.machine.tail_bytes > MEMORY, "nothing was written to the filer"
    brokers.flush()
    assert brokers.stored_values() == values
