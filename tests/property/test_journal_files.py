"""Whatever a crash or a disk does to the files of a journal: recovery finds exactly what was written, or says so."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smq_broker.journal.record_format import FileState, readable_records, record_parts, scan
from smq_broker.journal.recovery import RecoveredLog, recover
from smq_broker.journal.segment_files import first_offset
from smq_broker.journal.segment_journal import SegmentJournal
from smq_proto.v1 import data_pb2 as pb
from support.data.raw_flight import rows

Payloads = list[tuple[bytes, bytes]]

payloads = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=60)), max_size=5)
batches = st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=3), min_size=1, max_size=6)


def as_file(records: Payloads) -> tuple[bytes, list[int]]:
    """The file, and the ends of its records in bytes."""
    data, ends = b"", []
    for header, body in records:
        data += b"".join(record_parts(header, body))
        ends.append(len(data))
    return data, ends


def contents(data: bytes) -> Payloads:
    return [
        (data[r.header_at : r.header_at + r.header_length], data[r.body_at : r.body_at + r.body_length])
        for r in scan(data).records
    ]


@given(payloads, st.data())
def test_any_prefix_of_a_file_is_whole_up_to_its_last_whole_record(records: Payloads, data: st.DataObject) -> None:
    written, ends = as_file(records)
    length = data.draw(st.integers(0, len(written)))
    whole = sum(end <= length for end in ends)
    at_an_end = length in (0, *ends)
    assert contents(written[:length]) == records[:whole]
    assert scan(written[:length]).state is (FileState.WHOLE if at_an_end else FileState.TORN)


@given(payloads.filter(bool), st.data())
def test_no_flipped_bit_goes_unnoticed(records: Payloads, data: st.DataObject) -> None:
    written, ends = as_file(records)
    at = data.draw(st.integers(0, len(written) - 1))
    changed = bytearray(written)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    damaged = sum(end <= at for end in ends)
    assert contents(bytes(changed)) == records[:damaged]
    assert scan(bytes(changed)).state is FileState.DAMAGED
    assert len(list(readable_records(bytes(changed)))) <= len(records) - 1


class NoMeter:
    def written(self, nbytes: int, seconds: float) -> None: ...

    def resized(self, nbytes: int) -> None: ...

    def failed(self) -> None: ...


def write(folder: Path, values: list[list[bytes]], file_bytes: int) -> None:
    """A journal with one record for each list of values."""
    opened = pb.OpenSegment(segment=pb.Segment(name="s"), topic=pb.TopicInfo(uid="u"))
    journal = SegmentJournal(folder / "u" / "s", opened, NoMeter(), file_bytes)
    journal.create()
    end = 0
    for some in values:
        entry = pb.ReplicationBatch.Entry(producer="p", epoch=1, sequence=end, rows=len(some))
        header = pb.ReplicationBatch(base_offset=end, entries=[entry], watermark=end)
        journal.append(end, end + len(some), header.SerializeToString(), rows(some).serialize())
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
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        damaged.write_bytes(content)
        (log,) = recover(folder, None)
        assert not log.complete
        found = values_of(log)
        assert found == values[: len(found)] and len(found) < len(values)
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
        (log,) = recover(folder, None)
        found = values_of(log)
        assert log.complete, log.problem
        assert found == values[: len(found)]
        lost = len(scan(content).records) - len(scan(kept).records)
        assert len(found) == len(values) - lost


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.lists(st.binary(max_size=5), min_size=1, max_size=2), min_size=3, max_size=6), st.data())
def test_a_missing_file_makes_a_journal_incomplete(values: list[list[bytes]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, values, 1)
        files = sorted(it for it in (folder / "u" / "s").iterdir() if first_offset(it) is not None)
        number = data.draw(st.integers(1, len(files) - 2))
        files[number].unlink()
        (log,) = recover(folder, None)
        assert not log.complete
        assert values_of(log) == values[:number]
        assert log.watermark == sum(map(len, values[:-1])), "later records say what was acked"


def test_rows_of_a_recovered_log_are_not_copied(tmp_path: Path) -> None:
    write(tmp_path, [[b"x" * 1_000_000]], 1 << 20)
    (log,) = recover(tmp_path, None)
    before = pa.total_allocated_bytes()
    ((_, batch),) = log.messages(rows([b"x"]).schema)
    assert batch.num_rows == 1
    assert pa.total_allocated_bytes() - before < 100_000
