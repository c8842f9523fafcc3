"""Files of journals are used again, without any trace of their former records and without filling the disk."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from smq_broker.journal.disk_activity import DiskActivity, Operation
from smq_broker.journal.file_writer import FileWriter, write_without_lock
from smq_broker.journal.folder import RECYCLED, JournalFolder
from smq_broker.journal.journal_files import first_offset
from smq_broker.journal.journal_metrics import JournalMetrics
from smq_broker.journal.record_format import EMPTY_BYTES
from smq_broker.journal.recovery import RecoveredLog, recover
from smq_broker.journal.recycled_files import MIN_FILE_BYTES, RecycledFiles
from smq_broker.journal.row_encoder import COPY_BELOW_BYTES, RowEncoder
from smq_broker.journal.segment_journal import SegmentJournal
from smq_proto.v1 import data_pb2 as pb
from support.data.raw_flight import rows
from support.in_memory.process_journal import NoProcessJournal

SCHEMA = rows([b"x"]).schema


class Journals:
    """Journals of one incarnation, with a file for each record."""

    def __init__(self, folder: Path, limit_bytes: int = 1 << 30) -> None:
        self.folder = folder
        self.disk = DiskActivity()
        self.meter = JournalMetrics(self.disk)
        self.recycled = RecycledFiles(folder.parent / "recycled", self.meter.resized, limit_bytes)

    def journal(self, segment: str = "s", writer: FileWriter | None = None) -> SegmentJournal:
        opened = pb.OpenSegment(segment=pb.Segment(name=segment), topic=pb.TopicInfo(uid="u"))
        folder = self.folder / "u" / segment
        return SegmentJournal(
            folder=folder,
            opened=opened,
            meter=self.meter,
            recycled=self.recycled,
            writer=writer or FileWriter(),
            activity=self.disk,
            process=NoProcessJournal(),
            file_bytes=1,
        )

    def disk_bytes(self) -> int:
        return sum(
            path.stat().st_size for path in self.folder.parent.rglob("*") if path.suffix != ".json" and path.is_file()
        )

    def recovered(self) -> RecoveredLog:
        (log,) = recover(self.folder, None).logs
        return log


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    return Journals(tmp_path / "i")


def large(offset: int) -> bytes:
    return b"%d " % offset * 700_000


def append(journal: SegmentJournal, offset: int, value: bytes) -> None:
    entry = pb.ReplicationBatch.Entry(producer="p", epoch=1, sequence=offset, rows=1)
    header = pb.ReplicationBatch(base_offset=offset, entries=[entry], watermark=offset)
    journal.append(offset, offset + 1, header.SerializeToString(), rows([value]))


def values(log: RecoveredLog) -> list[bytes]:
    return [value for _, batch in log.messages(SCHEMA) for value in batch.column("value").to_pylist()]


def inodes(folder: Path) -> set[int]:
    return {path.stat().st_ino for path in folder.iterdir() if first_offset(path) is not None}


def test_a_journal_is_busy_from_the_beginning_of_an_operation_to_its_end(journals: Journals) -> None:
    during: list[Operation | None] = []

    def write(fd: int, buffers: Sequence[memoryview], at: int) -> int:
        during.append(journals.disk.oldest())
        if failing:
            raise OSError(errno.EIO, "the disk failed")
        return write_without_lock(fd, buffers, at)

    failing = False
    journal = journals.journal(writer=FileWriter(write, write))
    append(journal, 0, b"x")
    assert len(during) == 2 and during[0] == during[1], "the file and its first record are one operation"
    failing = True
    with pytest.raises(OSError, match="failed"):
        append(journal, 1, b"x")
    assert None not in during
    assert journals.disk.oldest() is None


def test_a_trimmed_file_is_used_again(journals: Journals) -> None:
    journal = journals.journal()
    for offset in range(4):
        append(journal, offset, large(offset))
    former = inodes(journal.folder)
    journal.trim(2)
    for offset in range(4, 6):
        append(journal, offset, large(offset))
    assert inodes(journal.folder) == former
    assert not list((journals.folder.parent / "recycled").iterdir())
    log = journals.recovered()
    assert (log.complete, log.first, log.end) == (True, 2, 6)
    assert values(log) == [large(offset) for offset in range(2, 6)]
    assert journals.meter.disk_bytes == journals.disk_bytes()


def test_former_records_do_not_follow_smaller_ones(journals: Journals) -> None:
    journal = journals.journal()
    for offset in range(3):
        append(journal, offset, large(offset))
    journal.trim(2)
    append(journal, 3, b"small")
    append(journal, 4, b"smaller")
    log = journals.recovered()
    assert log.complete and values(log) == [large(2), b"small", b"smaller"]
    assert journals.meter.disk_bytes == journals.disk_bytes()


def test_files_of_a_sealed_segment_are_used_by_others(journals: Journals) -> None:
    sealed, other = journals.journal("sealed"), journals.journal()
    for offset in range(2):
        append(sealed, offset, large(offset))
    former = inodes(sealed.folder)
    sealed.remove()
    for offset in range(3):
        append(other, offset, large(offset))
    assert former < inodes(other.folder)
    assert values(journals.recovered()) == [large(offset) for offset in range(3)]


def test_an_emptied_file_gives_its_space_back(journals: Journals) -> None:
    journal = journals.journal()
    append(journal, 0, large(0))
    journal.trim(1)
    (file,) = (path for path in journal.folder.iterdir() if first_offset(path) is not None)
    assert (first_offset(file), file.stat().st_size) == (1, EMPTY_BYTES)
    assert journals.meter.disk_bytes == EMPTY_BYTES
    log = journals.recovered()
    assert (log.complete, log.first, log.end) == (True, 1, 1)
    append(journal, 1, b"b")
    assert values(journals.recovered()) == [b"b"]


def test_recycled_files_have_a_limit(tmp_path: Path) -> None:
    journals = Journals(tmp_path / "i", limit_bytes=3_000_000)
    journal = journals.journal()
    for offset in range(6):
        append(journal, offset, large(offset))
    journal.trim(5)
    assert len(list((tmp_path / "recycled").iterdir())) == 2
    assert journals.meter.disk_bytes == journals.disk_bytes()


def test_small_files_are_deleted(journals: Journals) -> None:
    journal = journals.journal()
    for offset in range(3):
        append(journal, offset, b"small")
    journal.trim(2)
    assert journals.recycled.take() is None
    journal.remove()
    assert journals.disk_bytes() == journals.meter.disk_bytes == 0


def test_recycled_files_give_their_space_to_a_full_disk(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed, journal = journals.journal("sealed"), journals.journal()
    append(sealed, 0, large(0))
    append(journal, 0, b"a")
    sealed.remove()
    write = FileWriter.write

    def write_if_there_is_space(writer: FileWriter, fd: int, buffers: list[memoryview], at: int) -> int:
        if list((journals.folder.parent / "recycled").iterdir()):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(writer, fd, buffers, at)

    monkeypatch.setattr(journals.recycled, "take", lambda: None)
    monkeypatch.setattr(FileWriter, "write", write_if_there_is_space)
    append(journal, 1, b"b")
    assert values(journals.recovered()) == [b"a", b"b"]
    assert journals.meter.disk_bytes == journals.disk_bytes()


def test_short_writes_are_continued(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    write = FileWriter.write
    monkeypatch.setattr(FileWriter, "write", lambda it, fd, views, at: write(it, fd, [views[0][:1000]], at))
    journal = journals.journal()
    append(journal, 0, large(0))
    assert values(journals.recovered()) == [large(0)]


def test_a_failed_journal_keeps_no_space(journals: Journals) -> None:
    journal = journals.journal()
    for offset in range(2):
        append(journal, offset, large(offset))
    journal.give_up()
    journal.trim(2)
    assert journals.disk_bytes() == journals.meter.disk_bytes == 0


def test_the_next_process_deletes_the_recycled_files_of_the_former(tmp_path: Path) -> None:
    (tmp_path / RECYCLED).mkdir()
    (tmp_path / RECYCLED / "1").write_bytes(bytes(MIN_FILE_BYTES))
    folder = JournalFolder(
        folder=tmp_path, incarnation="i", root="root", meter=JournalMetrics(DiskActivity()), activity=DiskActivity()
    )
    folder.lock()
    assert not (tmp_path / RECYCLED).exists()
    folder.unlock()


def test_a_process_that_ends_before_it_opens_a_segment_leaves_nothing(
    journals: Journals, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = journals.journal()
    journal.create()
    (journal.folder / "segment.json").unlink()
    found = recover(journals.folder, None)
    assert not found.logs and not found.unusable
    assert "journal.unusable" not in capsys.readouterr().out


class Killed(BaseException): ...


class KilledAtStep:
    """Ends the process at one of its steps, each of which changes files."""

    def __init__(self, step: int, patched: pytest.MonkeyPatch) -> None:
        self._left = step
        for owner, name in ((FileWriter, "write"), (os, "open"), (os, "ftruncate"), (Path, "rename"), (Path, "unlink")):
            patched.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise Killed
            return call(*args, **options)

        return counted


def test_a_kill_between_any_two_steps_leaves_a_complete_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in itertools.count():
        journals = Journals(tmp_path / str(step) / "i")
        journals.folder.mkdir(parents=True)
        acked = stored = 0
        with monkeypatch.context() as patched:
            KilledAtStep(step, patched)
            journal = journals.journal()
            try:
                for chain_end in (0, 0, 0, 2, 3, 3, 6, 8, 8):
                    stored = chain_end
                    journal.trim(chain_end)
                    append(journal, acked, large(acked))
                    acked += 1
                break
            except Killed:
                pass
        for log in recover(journals.folder, None).logs:
            assert log.complete, f"step {step}: {log.problem}"
            assert log.first <= stored and acked <= max(log.end, stored)
            assert values(log) == [large(offset) for offset in range(log.first, log.end)]
        assert acked == 0 or recover(journals.folder, None).logs
    assert acked == 9 and step > 30


@pytest.mark.parametrize("nbytes", [10, COPY_BELOW_BYTES])
def test_rows_are_encoded_as_one_message(nbytes: int) -> None:
    encoder = RowEncoder()
    for batch in (rows([b"x" * nbytes, b"y"]), rows([b"y", b"x" * nbytes, b"z"]).slice(1)):
        encoded = b"".join(map(bytes, encoder.encode(batch)))
        assert pa.ipc.read_record_batch(pa.py_buffer(encoded), SCHEMA).equals(batch)
        assert encoded == batch.serialize().to_pybytes()


def test_a_large_body_is_not_copied() -> None:
    batch = rows([b"x" * 10_000_000])
    before = pa.total_allocated_bytes()
    parts = RowEncoder().encode(batch)
    assert sum(map(len, parts)) > 10_000_000
    assert pa.total_allocated_bytes() - before < 10_000


def test_rows_with_other_columns_are_encoded_too() -> None:
    encoder = RowEncoder()
    for type_ in (pa.int64(), pa.int32()):
        batch = pa.record_batch([pa.array(range(100_000), type_)], ["number"])
        encoded = b"".join(map(bytes, encoder.encode(batch)))
        assert pa.ipc.read_record_batch(pa.py_buffer(encoded), batch.schema).equals(batch)


def test_the_space_of_a_file_that_is_used_again_is_free_for_others(tmp_path: Path) -> None:
    recycled = RecycledFiles(tmp_path / "recycled", lambda nbytes: None, limit_bytes=MIN_FILE_BYTES)
    for number in range(3):
        path = tmp_path / str(number)
        path.write_bytes(bytes(MIN_FILE_BYTES))
        recycled.add(path)
        taken = recycled.take()
        assert taken is not None
        os.close(taken.fd)
        assert recycled.take() is None
