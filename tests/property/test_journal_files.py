"""Whatever a crash or a disk does to the files of a journal: recovery finds exactly what was written, or says so."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smq_broker.journal import record_format
from smq_broker.journal.disk_activity import DiskActivity
from smq_broker.journal.file_writer import FileWriter
from smq_broker.journal.journal_files import first_offset
from smq_broker.journal.record_format import (
    END_BYTES,
    RECORDS_AT,
    FileState,
    empty_file,
    readable_records,
    record_parts,
    scan,
)
from smq_broker.journal.recovery import RecoveredLog, recover
from smq_broker.journal.recycled_files import RecycledFiles
from smq_broker.journal.segment_journal import SegmentJournal
from smq_proto.v1 import data_pb2 as pb
from support.data.raw_flight import rows
from support.in_memory.process_journal import NoProcessJournal

# Headers and bodies of records.
Payloads = list[tuple[bytes, bytes]]

payloads = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=60)), max_size=5)
long_payloads = st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 9000).map(bytes)), max_size=5)
batches = st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=3), min_size=1, max_size=6)
nonces = st.integers(0, 2**64 - 1)
PAGE = 4096


def writes(nonce: int, records: Payloads) -> list[tuple[int, bytes]]:
    """The writes that make a file: where, and what."""
    at, made = RECORDS_AT, [(0, empty_file(nonce))]
    for header, body in records:
        parts, record = record_parts(nonce, at, header, [body[:10], body[10:]])
        made.append((at, b"".join(map(bytes, parts))))
        at = record.end
    return made


def as_file(records: Payloads, former: bytes = b"", nonce: int = 1) -> tuple[bytes, list[int]]:
    """A file that had the ``former`` bytes, and the ends of its records in bytes."""
    file = bytearray(former)
    made = writes(nonce, records)
    for at, data in made:
        file[at : at + len(data)] = data
    return bytes(file), [at + len(data) - END_BYTES for at, data in made[1:]]


def contents(data: bytes) -> Payloads:
    return [
        (data[r.header_at : r.header_at + r.header_length], data[r.body_at : r.body_at + r.body_length])
        for r in scan(data).records
    ]


@given(payloads, st.data())
def test_any_prefix_of_a_file_has_its_whole_records(records: Payloads, data: st.DataObject) -> None:
    written, ends = as_file(records)
    length = data.draw(st.integers(0, len(written)))
    whole = sum(end <= length for end in ends)
    assert contents(written[:length]) == records[:whole]
    assert scan(written[:length]).state is (FileState.WHOLE if length in (0, len(written)) else FileState.TORN)


@given(payloads, payloads, st.data())
def test_no_flipped_bit_goes_unnoticed(records: Payloads, former: Payloads, data: st.DataObject) -> None:
    written, ends = as_file(records, as_file(former, nonce=2)[0])
    end_mark = ends[-1] if ends else RECORDS_AT
    at = data.draw(st.integers(0, end_mark + END_BYTES - 1))
    changed = bytearray(written)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    damaged = sum(end <= at for end in ends) if at >= RECORDS_AT else 0
    assert contents(bytes(changed)) == records[:damaged]
    assert scan(bytes(changed)).state in (FileState.DAMAGED, FileState.FOREIGN)
    if RECORDS_AT <= at < end_mark:
        assert len(list(readable_records(bytes(changed)))) < len(records)


@given(long_payloads, long_payloads, nonces, nonces)
def test_former_records_of_a_file_never_count(records: Payloads, former: Payloads, nonce: int, other: int) -> None:
    if nonce == other:
        return
    written, _ = as_file(records, as_file(former, nonce=other)[0], nonce)
    assert contents(written) == records
    assert scan(written).state is FileState.WHOLE


@given(long_payloads.filter(bool), st.data())
def test_a_process_that_is_killed_while_it_writes_leaves_the_records_before(
    records: Payloads, data: st.DataObject
) -> None:
    """The kernel copies page by page, and a kill ends that between two pages. The former records are the same ones."""
    file = bytearray(as_file(records, nonce=2)[0] if data.draw(st.booleans()) else b"")
    made = writes(1, records)
    for at, written in made[:-1]:
        file[at : at + len(written)] = written
    at, last = made[-1]
    pages = data.draw(st.integers(0, (at + len(last) - 1) // PAGE - at // PAGE))
    copied = max(0, (at // PAGE + pages) * PAGE - at)
    file[at : at + copied] = last[:copied]
    assert contents(bytes(file)) == records[:-1]
    assert scan(bytes(file)).state is (FileState.TORN if copied else FileState.WHOLE)


def test_a_kill_at_a_page_is_no_damage_whatever_the_length_of_the_record() -> None:
    for length in range(PAGE - 150, PAGE + 50):
        records = [(b"header", bytes(length)), (b"header", bytes(length))]
        former = as_file(records, nonce=2)[0]
        made = writes(1, records)
        for number, (at, written) in enumerate(made):
            file = bytearray(former)
            for before, data in made[:number]:
                file[before : before + len(data)] = data
            for copied in range(-at % PAGE, len(written), PAGE):
                file[at : at + copied] = written[:copied]
                expected = FileState.TORN if copied else FileState.WHOLE
                if number:
                    assert (contents(bytes(file)), scan(bytes(file)).state) == (records[: number - 1], expected)


def test_a_file_of_another_version_is_not_taken_for_empty_or_torn() -> None:
    for length in (24, 32, 1000):
        assert scan(b"SMQ\x01" + bytes(length)).state is FileState.FOREIGN


def test_files_of_the_version_before_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [(b"header", b"body")]
    monkeypatch.setattr(record_format, "FILE", b"SMQ\x02")
    before = as_file(records)[0]
    monkeypatch.undo()
    assert before.startswith(b"SMQ\x02")
    assert (contents(before), scan(before).state) == (records, FileState.WHOLE)


class NoMeter:
    def written(self, nbytes: int, seconds: float) -> None: ...

    def resized(self, nbytes: int) -> None: ...

    def failed(self) -> None: ...


def write(folder: Path, values: list[list[bytes]], file_bytes: int) -> None:
    """A journal with one record for each list of values."""
    opened = pb.OpenSegment(segment=pb.Segment(name="s"), topic=pb.TopicInfo(uid="u"))
    recycled = RecycledFiles(folder / "recycled", lambda nbytes: None)
    journal = SegmentJournal(
        folder=folder / "u" / "s",
        opened=opened,
        meter=NoMeter(),
        recycled=recycled,
        writer=FileWriter(),
        activity=DiskActivity(),
        process=NoProcessJournal(),
        file_bytes=file_bytes,
    )
    journal.create()
    end = 0
    for some in values:
        entry = pb.ReplicationBatch.Entry(producer="p", epoch=1, sequence=end, rows=len(some))
        header = pb.ReplicationBatch(base_offset=end, entries=[entry], watermark=end)
        batch = rows(some)
        encoded = batch.serialize().to_pybytes() if len(some) % 2 else batch  # a message on a shared stream is encoded
        journal.append(end, end + len(some), header.SerializeToString(), encoded)
        end += len(some)
    journal.close()


def values_of(log: RecoveredLog) -> list[list[bytes]]:
    return [batch.column("value").to_pylist() for _, batch in log.messages(rows([b"x"]).schema)]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(batches, st.integers(1, 1500), st.data())
def test_a_damaged_journal_gives_its_beginning_and_says_that_it_is_incomplete(
    values: list[list[bytes]], file_bytes: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, values, file_bytes)
        files = sorted(it for it in (folder / "u" / "s").iterdir() if first_offset(it) is not None)
        damaged = data.draw(st.sampled_from(files))
        content = bytearray(damaged.read_bytes())
        records = scan(content).size
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        damaged.write_bytes(content)
        (log,) = recover(folder, None).logs
        assert not log.complete
        found = values_of(log)
        assert found == values[: len(found)]
        assert len(found) < len(values) or (damaged == files[-1] and at >= records), (
            "or only the mark of the end is damaged"
        )
        assert log.end == sum(map(len, found))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(batches, st.integers(1, 1500), st.data())
def test_a_journal_that_was_cut_off_while_it_was_written_is_complete_up_to_there(
    values: list[list[bytes]], file_bytes: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, values, file_bytes)
        last = max(it for it in (folder / "u" / "s").iterdir() if first_offset(it) is not None)
        content = last.read_bytes()
        kept = content[: data.draw(st.integers(0, len(content)))]
        last.write_bytes(kept)
        (log,) = recover(folder, None).logs
        found = values_of(log)
        assert log.complete, log.problem
        assert found == values[: len(found)]
        lost = len(scan(content).records) - len(scan(kept).records)
        assert len(found) == len(values) - lost


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.lists(st.binary(max_size=5), min_size=1, max_size=2), min_size=2, max_size=4), st.data())
def test_a_journal_is_incomplete_if_a_file_before_the_last_is_cut_off(
    values: list[list[bytes]], data: st.DataObject
) -> None:
    """Also if only the mark of its end is gone: a file that was left ends with it, so its disk has lost bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, values, 1)
        *others, _ = sorted(it for it in (folder / "u" / "s").iterdir() if first_offset(it) is not None)
        cut = data.draw(st.sampled_from(others))
        content = cut.read_bytes()
        missing = data.draw(st.integers(1, END_BYTES) | st.integers(1, len(content)))
        cut.write_bytes(content[:-missing])
        (log,) = recover(folder, None).logs
        assert not log.complete


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.lists(st.binary(max_size=5), min_size=1, max_size=2), min_size=3, max_size=6), st.data())
def test_a_missing_file_makes_a_journal_incomplete(values: list[list[bytes]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, values, 1)
        files = sorted(it for it in (folder / "u" / "s").iterdir() if first_offset(it) is not None)
        number = data.draw(st.integers(1, len(files) - 2))
        files[number].unlink()
        (log,) = recover(folder, None).logs
        assert not log.complete
        assert values_of(log) == values[:number]
        assert log.watermark == sum(map(len, values[:-1])), "later records say what was acked"


def test_rows_of_a_recovered_log_are_not_copied(tmp_path: Path) -> None:
    write(tmp_path, [[b"x" * 1_000_000]], 1 << 20)
    (log,) = recover(tmp_path, None).logs
    before = pa.total_allocated_bytes()
    ((_, batch),) = log.messages(rows([b"x"]).schema)
    assert batch.num_rows == 1
    assert pa.total_allocated_bytes() - before < 100_000
