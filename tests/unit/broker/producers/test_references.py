"""References at a primary and its follower: what is rejected, appended, replicated, journaled, written and served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq_broker.access.callers import OPEN_CALLER
from smq_broker.streams.frame_spacing import FrameRate, FrameSpacing
from smq_broker.streams.tail import tail_frames
from smq_core.errors import CorruptChunk, InvalidRequest, ReferenceRejected, StoreUnavailable
from smq_core.model.entities import SECOND
from smq_core.model.keyspace import KeyRange
from smq_core.model.reference import Reference
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import reference_from_pb
from smq_storage.catalog import paths
from smq_storage.object_store.json_codec import to_json
from smq_storage.uploads.upload_format import KEY
from smq_storage.uploads.uploaded_files import ReferencedRows, read_referenced_rows
from support.data import uploads
from support.data.raw_flight import rows
from support.data.tricky_names import PARTS
from support.in_memory.broker_parts import ProducerClient
from support.in_memory.flight_streams import CallContext
from support.in_memory.journaled_brokers import JournaledBrokers
from support.waiting import eventually

VALUES = [b"u%d" % n for n in range(6)]
ALL = KeyRange(0, 1024)


class Brokers(JournaledBrokers):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hosted = self.brokers[0].hosted(self.topic, self.segment)
        self.upload = self.write_upload("u.parquet")

    def write_upload(self, name: str, **footer: Any) -> uploads.WrittenUpload:
        """Two messages in each of the partitions 1, 5 and 9."""
        messages = pa.Table.from_batches([rows(VALUES[2 * n : 2 * n + 2], partition=4 * n + 1) for n in range(3)])
        upload = uploads.write(self.store, self.topic.uid, name, messages)
        if footer:
            upload = uploads.write(self.store, self.topic.uid, name, messages, replace(upload.footer, **footer))
        return upload

    def write_file(self, name: str, table: pa.Table, **options: Any) -> Reference:
        """A reference to a file that another program wrote, with a true footer of an upload."""
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink, table.schema, **{"use_dictionary": False, "compression": "zstd"} | options
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({KEY: to_json(self.upload.footer).decode()})
        data = sink.getvalue()
        etag = self.store.put(paths.uploaded_file(self.topic.uid, name), data)
        return replace(self.reference(), upload=name, etag=etag, bytes=data.size)

    def upload_data(self) -> bytes:
        return bytes(self.store.get(paths.uploaded_file(self.topic.uid, self.upload.name)).data)

    def write_bytes(self, name: str, data: bytes) -> Reference:
        etag = self.store.put(paths.uploaded_file(self.topic.uid, name), data)
        return replace(self.reference(), upload=name, etag=etag)

    def produce(self, name: str = "p") -> ProducerClient:
        return self.brokers[0].produce(self.topic, self.segment, name)

    def reference(self) -> Reference:
        return self.upload.reference(ALL)

    def values(self) -> list[bytes]:
        """The values in the filer, also those in uploads."""
        found: list[bytes] = []
        for info in self.chain.walk():
            referenced = ReferencedRows.of_chunk(self.topic.uid, info)
            chunk = self.chain.read(info.first)
            assert chunk is not None
            tables = [chunk[1]] if referenced is None else [t for _, t in read_referenced_rows(self.store, referenced)]
            assert referenced is None or chunk[1].num_rows == 0
            found += [value for table in tables for value in table.column("value").to_pylist()]
        return found


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path)


def send(producer: ProducerClient, sequence: int, value: bytes, rejections: int = 0) -> None:
    producer.send(sequence, rows([value]), rejections=rejections)


def rejection(producer: ProducerClient) -> ReferenceRejected:
    error = error_from_pb(producer.wait_reply("rejected").rejected.error)
    assert isinstance(error, ReferenceRejected)
    return error


def test_a_reference_is_ordered_with_streamed_batches(brokers: Brokers) -> None:
    producer = brokers.produce()
    producer.wait_reply("opened")
    send(producer, 0, b"a")
    producer.publish(1, brokers.reference())
    send(producer, 2, b"b")
    assert [producer.wait_acked(n) for n in range(3)] == [0, 1, 7]
    follower = brokers.brokers[1].hosted(brokers.topic, brokers.segment)
    eventually(lambda: follower.machine.watermark == 8)
    assert [entry.batch.reference for entry in follower.machine.tail] == [
        entry.batch.reference for entry in brokers.hosted.machine.tail
    ]
    assert brokers.hosted.machine.tail_bytes < 5000
    brokers.brokers[0].seal(brokers.topic, brokers.segment)
    assert brokers.values() == [b"a", *VALUES, b"b"]


def test_what_is_before_a_reference_is_flushed_with_it_at_once(brokers: Brokers) -> None:
    producer = brokers.produce()
    send(producer, 0, b"a")
    producer.wait_acked(0)
    assert not brokers.hosted.flush_schedule.chunk_due()
    producer.publish(1, brokers.reference())
    for _ in range(2):
        brokers.brokers[0].flusher.flush_next()
    assert brokers.hosted.machine.chain_end == 7
    assert brokers.values() == [b"a", *VALUES]


@pytest.mark.parametrize("number", [0, 1])
def test_journals_have_unflushed_references(brokers: Brokers, number: int) -> None:
    producer = brokers.produce()
    send(producer, 0, b"a")
    producer.publish(1, brokers.reference())
    producer.publish(2, brokers.upload.reference(KeyRange(5, 6)))
    send(producer, 3, b"b")
    assert producer.wait_acked(3) == 9
    brokers.restart()
    outcome = brokers.seal_recovered(number, 10)
    assert (outcome.end, outcome.lost) == (10, None)
    assert brokers.values() == [b"a", *VALUES, *VALUES[2:4], b"b"]


def test_many_references_alone_are_replicated(brokers: Brokers) -> None:
    producer = brokers.produce()
    for sequence in range(200):
        producer.publish(sequence, brokers.reference())
    assert producer.wait_acked(199) == 199 * 6


def test_the_tail_serves_a_reference_alone(brokers: Brokers) -> None:
    producer = brokers.produce()
    send(producer, 0, b"a")
    send(producer, 1, b"b")
    producer.publish(2, brokers.reference())
    send(producer, 3, b"c")
    producer.wait_acked(3)
    frames = tail_frames(brokers.hosted, 0, CallContext(), FrameSpacing(FrameRate()), OPEN_CALLER)
    headers = []
    while not headers or headers[-1].first_offset < 8:
        batch, header = next(frames)
        headers.append(pb.TailBatch.FromString(header))
        assert batch.num_rows == sum(headers[-1].rows)
    assert [(it.first_offset, sum(it.rows), it.HasField("reference")) for it in headers][-3:] == [
        (headers[-3].first_offset, 2 - headers[-3].first_offset, False),
        (2, 0, True),
        (8, 1, False),
    ]
    reference = headers[-2]
    assert reference_from_pb(reference.reference) == brokers.reference()
    assert list(reference.appended) == [brokers.hosted.machine.tail[2].appended]


def test_a_reader_within_a_reference_gets_it_from_its_first_row(brokers: Brokers) -> None:
    producer = brokers.produce()
    producer.publish(0, brokers.reference())
    producer.wait_acked(0)
    _, header = next(tail_frames(brokers.hosted, 4, CallContext(), FrameSpacing(FrameRate()), OPEN_CALLER))
    assert pb.TailBatch.FromString(header).first_offset == 0


BAD: dict[str, tuple[str, Callable[[Brokers], Reference]]] = {
    "no rows": ("rows", lambda it: replace(it.reference(), rows=0)),
    "too many rows": ("rows", lambda it: replace(it.reference(), rows=7)),
    "too few rows": ("rows", lambda it: replace(it.reference(), rows=5)),
    "another first row": ("rows", lambda it: replace(it.upload.reference(KeyRange(5, 6)), first_row=3)),
    "partitions beside the rows": ("rows", lambda it: replace(it.reference(), partition_min=0)),
    "partitions of another segment": ("partitions", lambda it: replace(it.reference(), partition_max=1024)),
    "times": ("timestamps", lambda it: replace(it.reference(), timestamp_min=1 << 62)),
    "no bytes": ("bytes", lambda it: replace(it.reference(), bytes=0)),
    "fewer bytes than its rows take": (
        "bytes",
        lambda it: replace(it.reference(), bytes=it.reference().bytes - 1),
    ),
    "too many bytes": ("bytes", lambda it: replace(it.reference(), bytes=1 << 40)),
    "another etag": ("upload", lambda it: replace(it.reference(), etag='"another"')),
    "no such file": ("upload", lambda it: replace(it.reference(), upload="v.parquet")),
    "a path outside": ("upload", lambda it: replace(it.reference(), upload="../../u.parquet")),
    "another schema": ("schema_version", lambda it: replace(it.reference(), schema_version=1)),
    "another topic": ("topic_uid", lambda it: it.write_upload("o.parquet", topic_uid="x").reference(ALL)),
    "a footer of another schema": (
        "schema_version",
        lambda it: it.write_upload("o.parquet", schema_version=1).reference(ALL),
    ),
    "a footer with too many rows": ("footer", lambda it: it.write_upload("o.parquet", rows=7).reference(ALL)),
    "a footer with wrong counts": (
        "footer",
        lambda it: it.write_upload("o.parquet", partitions=((1, 1), (5, 3), (10, 2))).reference(ALL),
    ),
    "a newer schema": (
        "schema_version",
        lambda it: replace(it.write_upload("o.parquet", schema_version=1).reference(ALL), schema_version=1),
    ),
    "a footer with a partition twice": (
        "footer",
        lambda it: it.write_upload("o.parquet", partitions=((1, 1), (1, 1), (5, 2), (9, 2))).reference(ALL),
    ),
    "a footer out of order": (
        "footer",
        lambda it: it.write_upload("o.parquet", partitions=((5, 2), (1, 2), (9, 2))).reference(ALL),
    ),
    "a file in a folder": ("upload", lambda it: replace(it.reference(), upload="other/u.parquet")),
    "no Parquet": ("upload", lambda it: it.write_bytes("n.parquet", b"no Parquet at all")),
    "an empty file": ("upload", lambda it: it.write_bytes("n.parquet", b"")),
    "a file that was cut off": ("upload", lambda it: it.write_bytes("n.parquet", it.upload_data()[:-9])),
    "Parquet that is no upload": ("upload", lambda it: it.write_bytes("n.parquet", plain_parquet(it.upload.table))),
    "a column too few": (
        "columns",
        lambda it: it.write_file("o.parquet", it.upload.table.drop_columns(["headers"])),
    ),
    "a column of another type": (
        "columns",
        lambda it: it.write_file("o.parquet", with_text_values(it.upload.table)),
    ),
    "no statistics": ("footer", lambda it: it.write_file("o.parquet", it.upload.table, write_statistics=False)),
    "more rows than its footer says": (
        "footer",
        lambda it: it.write_file("o.parquet", pa.concat_tables([it.upload.table] * 2)),
    ),
    "a large row group": (
        "row_groups",
        lambda it: it.write_file("o.parquet", large(it.upload.table)),
    ),
    "values that repeat": (
        "row_groups",
        lambda it: it.write_file("o.parquet", large(it.upload.table, 15 << 20), use_dictionary=["value"]),
    ),
    "rows beyond the partitions of its footer": (
        "footer",
        lambda it: it.write_file("o.parquet", with_last_partition(it.upload.table, 10)),
    ),
}


def large(table: pa.Table, size: int = 30 << 20) -> pa.Table:
    """The messages with one large value each, which takes few bytes in the file."""
    return table.set_column(3, table.schema.field("value"), pa.array([bytes(size)] * table.num_rows, pa.binary()))


def plain_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def with_text_values(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("value")
    return table.set_column(at, "value", table.column("value").cast(pa.string()))


def with_last_partition(table: pa.Table, partition: int) -> pa.Table:
    partitions = [*table.column("partition").to_pylist()[:-1], partition]
    return table.set_column(0, table.schema.field(0), pa.array(partitions, pa.int32()))


@pytest.mark.parametrize(("field", "make"), BAD.values(), ids=BAD.keys())
def test_a_bad_reference_is_rejected_and_the_session_goes_on(
    brokers: Brokers, field: str, make: Callable[[Brokers], Reference]
) -> None:
    bad = make(brokers)
    producer = brokers.produce()
    send(producer, 0, b"a")
    producer.publish(1, bad)
    send(producer, 2, b"lost if it were taken")
    error = rejection(producer)
    assert (error.field, error.upload) == (field, bad.upload), error
    assert producer.wait_reply("rejected").rejected.sequence == 1
    send(producer, 2, b"sent before the rejection came")
    send(producer, 1, b"b", rejections=1)
    producer.publish(2, brokers.reference(), rejections=1)
    assert [producer.wait_acked(n) for n in range(3)] == [0, 1, 2]
    brokers.brokers[0].seal(brokers.topic, brokers.segment)
    assert brokers.values() == [b"a", b"b", *VALUES]


def test_a_reference_names_a_file_of_its_topic_and_no_other(brokers: Brokers) -> None:
    producer = brokers.produce()
    for number, trick in enumerate(PARTS):
        producer.publish(0, replace(brokers.reference(), upload=trick), rejections=number)
        error = rejection(producer)
        assert error.message.isprintable() and len(error.message) < 1500, trick[:50]
        producer.replies.clear()
    producer.publish(0, brokers.reference(), rejections=len(PARTS))
    assert producer.wait_acked(0) == 0, "the session goes on"


def test_rows_outside_of_the_stated_range_are_found_by_the_reader(brokers: Brokers) -> None:
    """The middle rows are not what the file's footer and statistics say, and a broker reads no rows."""
    partitions = [1, 9, 5, 5, 1, 9]
    table = brokers.upload.table.set_column(0, brokers.upload.table.schema.field(0), pa.array(partitions, pa.int32()))
    lying = brokers.write_file("o.parquet", table)
    part = brokers.upload.reference(KeyRange(5, 6))
    producer = brokers.produce()
    producer.publish(0, replace(part, upload="o.parquet", etag=lying.etag))
    producer.publish(1, replace(brokers.upload.reference(KeyRange(1, 2)), upload="o.parquet", etag=lying.etag))
    producer.wait_acked(1)
    brokers.brokers[0].seal(brokers.topic, brokers.segment)
    with pytest.raises(CorruptChunk, match=r"o\.parquet.*partitions 1 to 9 were published as 1 to 1"):
        brokers.values()


def test_a_file_that_was_deleted_since_its_footer_was_read_is_rejected(brokers: Brokers) -> None:
    producer = brokers.produce()
    producer.publish(0, brokers.reference())
    producer.wait_acked(0)
    brokers.store.delete(paths.uploaded_file(brokers.topic.uid, brokers.upload.name))
    producer.publish(1, brokers.reference())
    assert "there is no such file" in rejection(producer).message
    send(producer, 1, b"b", rejections=1)
    assert producer.wait_acked(1) == 6


def test_a_reference_that_is_sent_twice_is_in_the_log_once(brokers: Brokers) -> None:
    producer = brokers.produce()
    producer.publish(0, brokers.reference())
    producer.publish(0, brokers.reference())
    send(producer, 1, b"b")
    assert producer.wait_acked(1) == 6 and producer.acked[0] == 0
    brokers.brokers[0].seal(brokers.topic, brokers.segment)
    assert brokers.values() == [*VALUES, b"b"]


def test_an_old_upload_is_rejected_and_a_repeat_is_not(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = brokers.produce()
    producer.publish(0, brokers.reference())
    producer.wait_acked(0)
    producer.close()
    checker = brokers.brokers[0].uploads
    now = checker._now()
    monkeypatch.setattr(checker, "_now", lambda: now + brokers.hosted.max_upload_age + 2 * SECOND)
    again = brokers.produce()
    again.publish(0, brokers.reference())
    assert again.wait_acked(0) == 0
    again.publish(1, brokers.reference())
    error = rejection(again)
    assert error.field == "age" and "upload it again" in error.message
    assert brokers.hosted.machine.end == 6


def test_a_reference_waits_for_the_filer(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    checker, calls = brokers.brokers[0].uploads, []
    check = checker.check

    def fail_twice(*args: Any) -> None:
        calls.append(args)
        if len(calls) < 3:
            raise StoreUnavailable("away")
        check(*args)

    monkeypatch.setattr(checker, "check", fail_twice)
    producer = brokers.produce()
    producer.publish(0, brokers.reference())
    assert producer.wait_acked(0) == 0 and len(calls) == 3


def test_a_batch_cannot_count_rejections_that_were_not_sent(brokers: Brokers) -> None:
    producer = brokers.produce()
    send(producer, 0, b"a", rejections=1)
    assert isinstance(error_from_pb(producer.wait_reply("error").error), InvalidRequest)
