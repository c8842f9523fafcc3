"""Files of ``write_upload`` are published as they are; files that only look like these are encoded again."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smq
from smq.producer import Producer
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.uploads import finished_files, uploader
from smq.producing.uploads.finished_files import may_be_finished, write_finished_file
from smq.producing.uploads.parquet_files import ParquetSource
from smq_core.model.entities import Column
from smq_core.model.keyspace import partition_of
from smq_storage.uploads.upload_format import CHECKSUM, KEY, parse_upload_footer, write_upload
from support.in_memory.producer_sessions import producer_of, session
from support.in_memory.published_uploads import keyed, reject, rows_at, streams_of, two_segments, uploads
from support.in_memory.topic import PARTITIONS, TopicInMemory
from support.waiting import HANG_GUARD, eventually


@pytest.fixture
def topic(driven_sessions: None) -> TopicInMemory:
    return TopicInMemory()


@pytest.fixture
def producer(topic: TopicInMemory) -> Iterator[Producer]:
    with producer_of(topic) as made:
        yield made


def finished(topic: TopicInMemory, table: pa.Table, key: str | None = None) -> bytes:
    sink = io.BytesIO()
    write_finished_file(BatchEncoder(topic.topic), table, sink, key)
    return sink.getvalue()


def uploaded(topic: TopicInMemory) -> list[bytes]:
    return [bytes(topic.files.get(path).data) for path in uploads(topic)]


def counts_of(rows: pa.Table) -> tuple[tuple[int, int], ...]:
    """Each partition with the number of its rows, for each run of rows of one partition."""
    runs = itertools.groupby(rows.column("partition").to_pylist())
    return tuple((partition, len(list(run))) for partition, run in runs)


def altered(data: bytes, table: pa.Table | None = None, **footer: Any) -> bytes:
    """The file with other rows, or another footer."""
    file = pq.ParquetFile(io.BytesIO(data))
    sink = io.BytesIO()
    own = parse_upload_footer(file.metadata).footer
    write_upload(sink, file.read() if table is None else table, replace(own, **footer))
    return sink.getvalue()


def test_a_finished_file_is_copied(producer: Producer, topic: TopicInMemory, tmp_path: Path) -> None:
    halves = two_segments(topic)
    path = tmp_path / "one.parquet"
    write_finished_file(BatchEncoder(topic.topic), keyed(3000), path, None)
    delivery = producer.publish_files([path, io.BytesIO(finished(topic, keyed(10, 3000)))])
    values: list[bytes] = []
    for driven in streams_of(*halves):
        eventually(lambda driven=driven: len(driven.references) == 2)
        for sequence, reference in enumerate(driven.references):
            rows = rows_at(topic, reference)
            partitions = [partition_of(key, PARTITIONS) for key in rows.column("key").to_pylist()]
            assert rows.column("partition").to_pylist() == partitions
            values += rows.column("value").to_pylist()
            driven.ack(sequence, sequence * 5000)
    assert sorted(values) == sorted(b"v%d" % n for n in range(3010))
    assert path.read_bytes() in uploaded(topic)
    assert [file.rows for file in delivery.result(HANG_GUARD).files] == [3000, 10]


def test_a_file_that_differs_from_an_upload_of_the_topic_is_encoded_again(
    producer: Producer, topic: TopicInMemory
) -> None:
    good = finished(topic, keyed(300))
    rows = pq.read_table(io.BytesIO(good))
    counts = counts_of(rows)
    unordered = rows.take([0, *range(298, 0, -1), 299])
    without_footer = io.BytesIO()
    pq.write_table(rows, without_footer)
    others = {
        "of another topic": altered(good, topic_uid="other"),
        "of another schema version": altered(good, schema_version=7),
        "in another order": altered(good, unordered),
        "in another order, as its footer says": altered(good, unordered, partitions=counts_of(unordered)),
        "with wrong counts": altered(good, partitions=((counts[0][0], counts[0][1] + 1), *counts[1:])),
        "with a wrong number of rows": altered(good, rows=299),
        "with other columns": altered(good, rows.drop_columns(["headers"])),
        "of a Parquet writer": without_footer.getvalue(),
    }
    for what, data in others.items():
        before = set(uploads(topic))
        producer.publish_files([io.BytesIO(data)])
        (new,) = set(uploads(topic)) - before
        content = bytes(topic.files.get(new).data)
        assert content != data, what
        found = pq.read_table(io.BytesIO(content))
        assert found.sort_by("value").equals(rows.sort_by("value")), what


def test_a_damaged_file_is_neither_copied_nor_encoded_again(
    producer: Producer, topic: TopicInMemory, tmp_path: Path
) -> None:
    """Its values would be others, and nobody would notice."""
    values = np.random.default_rng(0).bytes(100_000)
    table = pa.table({"value": [values[at : at + 100] for at in range(0, len(values), 100)]})
    data = bytearray(finished(topic, table))
    chunk = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(3)
    assert chunk.path_in_schema == "value"
    middle = chunk.data_page_offset + chunk.total_compressed_size // 2
    data[middle : middle + 4096] = bytes(4096)
    assert pq.read_table(io.BytesIO(data)).num_rows == 1000, "without checksums, nothing shows the damage"
    path = tmp_path / "damaged.parquet"
    path.write_bytes(data)
    with pytest.raises(smq.InvalidRequest, match=r"damaged\.parquet cannot be read.*CRC"):
        producer.publish_files([path])
    assert uploads(topic) == []


def test_a_file_is_copied_only_if_its_checksum_fits(producer: Producer, topic: TopicInMemory) -> None:
    good = finished(topic, keyed(300))
    metadata = pq.ParquetFile(io.BytesIO(good)).metadata.metadata
    checksum = metadata[CHECKSUM.encode()]
    of_a_former_release = io.BytesIO()
    rows = pq.read_table(io.BytesIO(good))
    with pq.ParquetWriter(of_a_former_release, rows.schema, write_statistics=["partition"]) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({KEY: metadata[KEY.encode()].decode()})
    for data in (good.replace(checksum, checksum[::-1]), of_a_former_release.getvalue()):
        before = set(uploads(topic))
        producer.publish_files([io.BytesIO(data)])
        (new,) = set(uploads(topic)) - before
        content = bytes(topic.files.get(new).data)
        assert content != data
        assert pq.read_table(io.BytesIO(content)).sort_by("value").equals(rows.sort_by("value"))


def test_the_bytes_that_are_copied_are_those_that_were_checked(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Somebody replaces the file after its footer was read."""
    path = tmp_path / "replaced.parquet"
    write_finished_file(BatchEncoder(topic.topic), keyed(300), path, None)
    other = altered(path.read_bytes(), topic_uid="other")
    read = ParquetSource._read_bytes

    def replace_and_read(source: ParquetSource, limit: int) -> bytes | None:
        path.write_bytes(other)
        return read(source, limit)

    monkeypatch.setattr(ParquetSource, "_read_bytes", replace_and_read)
    producer.publish_files([path])
    (content,) = uploaded(topic)
    assert content != other
    assert parse_upload_footer(pq.ParquetFile(io.BytesIO(content)).metadata).footer.topic_uid == "uid"


def test_partitions_beyond_the_ring_are_not_copied(producer: Producer, topic: TopicInMemory) -> None:
    wide = replace(topic.topic, spec=replace(topic.topic.spec, partitions=1024))
    sink = io.BytesIO()
    write_finished_file(BatchEncoder(wide), keyed(300), sink, None)
    producer.publish_files([sink])
    assert len(uploads(topic)) == 1 and sink.getvalue() not in uploaded(topic)


def test_a_large_file_is_not_copied(producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    data = finished(topic, keyed(300))
    monkeypatch.setattr("smq.producing.uploads.parquet_files.FILE_BYTES", len(data) - 1)
    producer.publish_files([io.BytesIO(data)])
    assert len(uploads(topic)) == 1 and data not in uploaded(topic)


def test_the_partitions_in_a_file_are_used_only_if_they_are_those_of_the_key(topic: TopicInMemory) -> None:
    columns = (Column("id", "int64"), Column("key", "int64"))
    encoder = BatchEncoder(replace(topic.topic, spec=replace(topic.topic.spec, schema=columns)))
    sink = io.BytesIO()
    write_finished_file(encoder, pa.table({"id": range(100), "key": range(100)}), sink, "id")
    metadata = pq.ParquetFile(sink).metadata
    assert may_be_finished(metadata, encoder, None)
    for column in ("id", "key"):
        assert not may_be_finished(metadata, encoder, column), "nobody knows whether it was this column"


def test_a_file_with_large_row_groups_is_not_copied(topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = BatchEncoder(topic.topic)
    metadata = pq.ParquetFile(io.BytesIO(finished(topic, keyed(300)))).metadata
    assert may_be_finished(metadata, encoder, None)
    monkeypatch.setattr(finished_files, "MAX_ROW_GROUP_BYTES", metadata.row_group(0).total_byte_size - 1)
    assert not may_be_finished(metadata, encoder, None)
    one_row = pq.ParquetFile(io.BytesIO(finished(topic, pa.table({"value": [b"v" * 100_000]})))).metadata
    assert may_be_finished(one_row, encoder, None), "it cannot be split"


@pytest.mark.parametrize("rows", [0, 100])
def test_a_table_without_rows_or_too_large_is_not_written(
    topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: int
) -> None:
    monkeypatch.setattr(finished_files, "FILE_BYTES", 100)
    with pytest.raises(smq.InvalidRequest, match=f"the table has {rows} rows"):
        write_finished_file(BatchEncoder(topic.topic), keyed(rows), tmp_path / "x.parquet", None)
    assert not list(tmp_path.iterdir())


def test_files_are_published_in_their_order_whichever_is_uploaded_first(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first PUT takes until another one has ended, so they overlap."""
    put_new, another_ended, first = topic.files.put_new, threading.Event(), threading.Lock()

    def put(path: str, data: Any) -> str:
        is_first = first.acquire(blocking=False)
        if is_first:
            assert another_ended.wait(HANG_GUARD)
        etag = put_new(path, data)
        another_ended.set()
        return etag

    monkeypatch.setattr(topic.files, "put_new", put)
    producer.publish_files([io.BytesIO(finished(topic, keyed(10, 10 * n))) for n in range(6)])
    (driven,) = streams_of(topic.first)
    eventually(lambda: len(driven.references) == 6)
    lowest = [min(int(v[1:]) for v in rows_at(topic, r).column("value").to_pylist()) for r in driven.references]
    assert lowest == [0, 10, 20, 30, 40, 50]


def test_large_tables_go_by_reference(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(1000)
    monkeypatch.setattr("smq.producing.uploads.reference_publisher.AUTO_BYTES", table.nbytes)
    producer.write(table.slice(0, 900), by_reference="auto")
    assert uploads(topic) == []
    producer.write(table, by_reference="auto")
    assert len(uploads(topic)) == 1
    with pytest.raises(smq.InvalidRequest, match="True, False or 'auto', not 'always'"):
        producer.write(table, by_reference="always")  # type: ignore[arg-type]
    session(0).opened()


def test_a_rejected_file_is_named(producer: Producer, topic: TopicInMemory, tmp_path: Path) -> None:
    names = [str(tmp_path / f"{n}.parquet") for n in range(2)]
    for name in names:
        pq.write_table(keyed(10), name)
    delivery = producer.publish_files(names)
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.written == [0, 1])
    driven.ack(0, 0)
    reject(driven, 1, "too old")
    with pytest.raises(smq.ReferenceRejected, match=rf"^{names[1]}: too old$") as raised:
        delivery.result(HANG_GUARD)
    assert (raised.value.upload, raised.value.field) == ("u", "age")


def test_what_is_in_memory_at_the_same_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(*sizes: int) -> bool:
        return uploader._are_too_many(*(uploader.UploadTask(None, size, lambda: None) for size in sizes))  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(uploader, "IN_FLIGHT_BYTES", 100)
    assert not too_many(50, 50) and too_many(50, 51)
    assert not too_many(1, 1, 1) and too_many(1, 1, 1, 1), "each has a thread"
