"""A producer publishes by reference. The test plays the primaries; the store is in memory."""

from __future__ import annotations

import io
import itertools
import time
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
from smq.producing.uploads import upload_encoder, uploader
from smq.producing.uploads.parquet_files import ParquetSource
from smq_core.errors import ReferenceRejected, SchemaMismatch, SmqError, StoreDenied, StoreStateUnknown, Unavailable
from smq_core.model.chunk_info import ProducerState, SealOutcome
from smq_core.model.entities import Column, Segment, TopicSchema
from smq_proto.error_conversion import error_to_pb
from smq_proto.wire import outcome_to_pb
from smq_storage.catalog import paths
from smq_storage.object_store.store import ObjectExists
from support.in_memory.producer_sessions import DrivenSession, expire, producer_of, session
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


ID, NOTE = Column("id", "int64"), Column("note", "string", nullable=True)


@pytest.fixture
def typed(topic: TopicInMemory) -> TopicInMemory:
    topic.topic = replace(topic.topic, spec=replace(topic.topic.spec, schema=(ID,), key="id"))
    layout = replace(topic.snapshot.layout, schemas=(TopicSchema(0, (ID,)),))
    topic.snapshot = replace(topic.snapshot, topic=topic.topic, layout=layout)
    return topic


def test_a_receipt_finds_each_row_of_the_table(producer: Producer, topic: TopicInMemory) -> None:
    halves = two_segments(topic)
    table = keyed(1000)
    delivery = producer.write(table, by_reference=True)
    found: dict[tuple[str, int], bytes] = {}
    for number, driven in enumerate(streams_of(*halves)):
        eventually(lambda driven=driven: driven.references)
        values = rows_at(topic, driven.references[0]).column("value").to_pylist()
        found |= {(driven.segment.name, 100 * number + n): value for n, value in enumerate(values)}
        assert not delivery.done()
        driven.ack(0, 100 * number)
    receipt = delivery.result(HANG_GUARD)
    assert [found[receipt[row]] for row in range(1000)] == table.column("value").to_pylist()
    assert len(uploads(topic)) == 1 and producer._engine.in_flight == 0


def test_rows_of_a_partition_keep_their_order_over_several_uploads(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_encoder, "UPLOAD_BYTES", 4000)
    before = producer.send(b"before", key=b"k1")
    delivery = producer.write(keyed(1000), by_reference=True)
    after = producer.send(b"after", key=b"k1")
    (driven,) = streams_of(topic.first)
    count = len(uploads(topic))
    assert count > 3
    eventually(lambda: driven.written == list(range(count + 2)))
    assert len(driven.batches) == 2 and len(driven.references) == count
    values = [v for r in driven.references for v in rows_at(topic, r).column("value").to_pylist()]
    own = [int(v[1:]) for v in values if int(v[1:]) % 50 == 1]
    assert own == list(range(1, 1000, 50))
    for sequence in range(count + 2):
        driven.ack(sequence, sequence * 1000)
    receipt = delivery.result(HANG_GUARD)
    assert before.result().offset == 0 < receipt.offsets.min() < receipt.offsets.max() < after.result().offset


def test_messages_that_still_wait_for_others_go_before_a_reference(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer._batcher, "_linger", 1000.0)
    producer._batcher._timers.begin_batch(time.monotonic(), 1000.0)  # after a pause, the first batch would not linger
    producer.send(b"before")
    producer.write(keyed(10), by_reference=True)
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.references)
    assert driven.written == [0, 1]
    assert driven.batches[0].column("value").to_pylist() == [b"before"]


def test_keyless_rows_are_spread(producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer._references, "_batch_bytes", 1000)
    producer.write(pa.table({"value": [b"x" * 100] * 200}), by_reference=True)
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.references)
    assert (driven.references[0].partition_min, driven.references[0].partition_max) == (0, PARTITIONS - 1)


def test_a_rejected_reference_fails_its_delivery_and_nothing_else(producer: Producer, topic: TopicInMemory) -> None:
    bad = producer.write(keyed(10), by_reference=True)
    good = producer.send(b"good")
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.written == [0, 1])
    reject(driven, 0, "too old")
    eventually(lambda: driven.written == [0, 1, 0])
    assert driven.rejections == [0, 0, 1], "the primary must know that the sequence has another meaning now"
    driven.ack(0, 0)
    assert good.result(HANG_GUARD).offset == 0
    with pytest.raises(smq.ReferenceRejected, match="too old"):
        bad.result(HANG_GUARD)
    producer.send(b"next")
    eventually(lambda: driven.written == [0, 1, 0, 1])
    assert producer._engine.failure is None


def test_after_a_split_the_same_file_is_published_by_row_ranges(producer: Producer, topic: TopicInMemory) -> None:
    table = keyed(300)
    delivered = producer.write(table, by_reference=True)
    delivery = producer.write(keyed(300, 300), by_reference=True)
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.written == [0, 1])
    halves = [topic.segment(1, 0, 3, (topic.first.name,)), topic.segment(2, 3, PARTITIONS, (topic.first.name,))]
    state = ProducerState(epoch=driven.identity[1], last_sequence=0, recent=(0,), instance=driven.identity[2])
    outcome = SealOutcome(segment=topic.first.name, end=300, producers={driven.identity[0]: state})
    driven.reply(sealed=outcome_to_pb(outcome, successors=halves))
    found: list[bytes] = []
    for half in streams_of(*halves):
        eventually(lambda half=half: half.references)
        (reference,) = half.references
        assert half.segment.range.start <= reference.partition_min <= reference.partition_max < half.segment.range.stop
        found += rows_at(topic, reference).column("value").to_pylist()
        half.ack(0, 0)
    assert sorted(found) == sorted(b"v%d" % n for n in range(300, 600))
    assert delivered.result(HANG_GUARD).segments == (topic.first.name,)
    assert set(delivery.result(HANG_GUARD).segments) == {half.name for half in halves}
    assert len(uploads(topic)) == 2, "nothing is uploaded twice"


def test_a_timeout_says_why_the_last_attempt_failed(producer: Producer, topic: TopicInMemory) -> None:
    delivery = producer.write(keyed(10), by_reference=True)
    session(0).reply(error=error_to_pb(smq.Overloaded("its memory is full")))
    session(0).break_off(smq.Unavailable("the lane was removed"))
    eventually(lambda: len(DrivenSession.opened_sessions) > 1)
    expire(producer, time.monotonic() + HANG_GUARD + 1)
    with pytest.raises(smq.DeliveryTimeout, match="its memory is full"):
        delivery.result(HANG_GUARD)


class FlakyStore:
    """Answers the first PUTs with these errors, although the first one of them has happened."""

    def __init__(self, store: Any, *errors: Exception) -> None:
        self._store = store
        self._errors = list(errors)

    def put_new(self, path: str, data: Any) -> str:
        etag = self._store.put_new(path, data)
        if self._errors:
            raise self._errors.pop(0)
        return str(etag)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("error", [StoreStateUnknown("no answer"), Unavailable("no leader answered")])
def test_a_put_without_an_answer_is_repeated_under_another_name(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch, error: SmqError
) -> None:
    monkeypatch.setattr(uploader, "MIN_BACKOFF_SECONDS", 0.001)
    topic.files = FlakyStore(topic.files, error)  # type: ignore[assignment]
    producer.write(keyed(10), by_reference=True)
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.references)
    first, second = sorted(uploads(topic), key=lambda path: path.rsplit("-", 2)[1])
    assert paths.uploaded_file("uid", driven.references[0].upload) == second != first
    assert driven.references[0].upload.startswith(f"{producer.producer_id}-0-2-")


def test_an_upload_that_never_ends_publishes_nothing_and_the_producer_goes_on(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "MIN_BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(producer._references, "_timeout", 0.0)
    topic.files = FlakyStore(topic.files, *[StoreStateUnknown("no answer")] * 5)  # type: ignore[assignment]
    with pytest.raises(smq.StoreUnavailable, match="no answer"):
        producer.write(keyed(10), by_reference=True)
    assert DrivenSession.opened_sessions == []
    after = producer.send(b"after")
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.written == [0])
    driven.ack(0, 0)
    assert after.result(HANG_GUARD).offset == 0 and driven.references == []


def test_an_upload_whose_names_are_all_taken_ends_with_an_error(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "MIN_BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(producer._references, "_timeout", 0.0)
    topic.files = FlakyStore(topic.files, *[ObjectExists("taken.parquet")] * 5)  # type: ignore[assignment]
    with pytest.raises(smq.StoreUnavailable, match=r"already had a file .* 1 attempts .*taken\.parquet.*publish again"):
        producer.write(keyed(10), by_reference=True)
    assert DrivenSession.opened_sessions == []


def test_refused_credentials_are_not_tried_again(producer: Producer, topic: TopicInMemory) -> None:
    topic.files = FlakyStore(topic.files, StoreDenied("no"))  # type: ignore[assignment]
    with pytest.raises(StoreDenied):
        producer.write(keyed(10), by_reference=True)
    assert DrivenSession.opened_sessions == []


# ---- capacity


@pytest.mark.parametrize("what", ["files", "a table"])
def test_uploads_of_one_call_are_published_together_or_not_at_all(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Else a program that repeats the call after Overloaded would publish some rows twice."""
    monkeypatch.setattr(producer._engine._budget, "limit", 2500)
    monkeypatch.setattr(producer, "_timeout", 0.0)
    monkeypatch.setattr(upload_encoder, "UPLOAD_BYTES", keyed(30).nbytes // 3 + 1)

    def publish() -> smq.Delivery[Any]:
        if what == "a table":
            return producer.write(keyed(30), by_reference=True)
        sinks = [io.BytesIO() for _ in range(3)]
        for number, sink in enumerate(sinks):
            pq.write_table(keyed(2, 2 * number), sink)
        return producer.publish_files(sinks)

    producer.send(b"before")
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.written == [0])
    before = producer._engine.in_flight
    with pytest.raises(smq.Overloaded):
        publish()
    assert len(uploads(topic)) == 3, "there is capacity for one of them, but not for all"
    assert producer._engine.in_flight == before
    driven.ack(0, 0)
    delivery = publish()
    eventually(lambda: driven.written == [0, 1, 2, 3])
    for sequence in range(1, 4):
        driven.ack(sequence, 100 * sequence)
    delivery.result(HANG_GUARD)
    assert producer._engine.in_flight == 0


def test_uploads_that_cannot_be_submitted_give_their_capacity_back(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, submitted = producer._engine.submit, itertools.count()

    def fail_the_second(*args: Any) -> None:
        if next(submitted) == 1:
            raise SchemaMismatch("a segment has no such column")
        submit(*args)

    monkeypatch.setattr(producer._engine, "submit", fail_the_second)
    monkeypatch.setattr(upload_encoder, "UPLOAD_BYTES", keyed(30).nbytes // 3 + 1)
    delivery = producer.write(keyed(30), by_reference=True)
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.written == [0])
    driven.ack(0, 0)
    with pytest.raises(SchemaMismatch, match="no such column"):
        delivery.result(HANG_GUARD)
    eventually(lambda: producer._engine.in_flight == 0)


# ---- files


def parquet(path: Path, table: pa.Table, **options: Any) -> str:
    pq.write_table(table, path, **options)
    return str(path)


def test_files_are_published_in_parts(
    producer: Producer, topic: TopicInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_encoder, "UPLOAD_BYTES", 20_000)
    monkeypatch.setattr("smq.producing.uploads.parquet_files.READ_BYTES", 2000)
    one = parquet(tmp_path / "one.parquet", keyed(3000), row_group_size=500)
    two = io.BytesIO()
    pq.write_table(keyed(10, 3000), two)
    none = parquet(tmp_path / "none.parquet", keyed(0))
    delivery = producer.publish_files([one, none, two])
    (driven,) = streams_of(topic.first)
    count = len(uploads(topic))
    assert count > 3
    eventually(lambda: len(driven.references) == count)
    at = 0
    for sequence, reference in enumerate(driven.references):
        driven.ack(sequence, at)
        at += reference.rows
    values = [v for r in driven.references for v in rows_at(topic, r).column("value").to_pylist()]
    assert sorted(values) == sorted(b"v%d" % n for n in range(3010))
    receipt = delivery.result(HANG_GUARD)
    assert [it.file for it in receipt.files] == [one, none, "files[2]"] and receipt.rows == 3010
    assert [it.rows for it in receipt.files] == [3000, 0, 10]
    assert receipt.files[2].ranges == (smq.PublishedRange(topic.first.name, 3000, 10),)


class CountedReads(io.BytesIO):
    """``total`` bytes of it were read."""

    total = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.total += len(data)
        return data


def test_a_file_is_read_part_by_part(topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within a row group."""
    monkeypatch.setattr("smq.producing.uploads.parquet_files.READ_BYTES", 200_000)
    rows = pa.table({"value": [np.random.default_rng(n).bytes(16_000) for n in range(1024)]})
    source = CountedReads()
    pq.write_table(rows, source, use_dictionary=False, compression="none", write_batch_size=16)  # pages of 1 MiB
    size = source.tell()
    parts = ParquetSource.of(source, 0).read(BatchEncoder(topic.topic), None, 500_000)
    next(parts)
    assert source.total < size / 2


@pytest.mark.parametrize("repeated", [True, False])
def test_what_is_decoded_at_a_time_is_limited(
    topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch, repeated: bool
) -> None:
    """A value that is repeated is in a file once, and takes memory for each row."""
    monkeypatch.setattr("smq.producing.uploads.parquet_files.READ_BYTES", 200_000)
    values = [b"%09d" % (0 if repeated else n) * 100 for n in range(20_000)]
    source = io.BytesIO()
    pq.write_table(pa.table({"value": values}), source)
    batches = [part for part, _ in ParquetSource.of(source, 0).read(BatchEncoder(topic.topic), None, 1)]
    assert max(batch.nbytes for batch in batches) < 300_000
    assert pa.concat_tables(batches).column("value").to_pylist() == values


def bad_files(folder: Path) -> Iterator[tuple[list[Any], type[smq.SmqError], str]]:
    """Files of one call, the error and what it says."""
    good = parquet(folder / "good.parquet", keyed(10))
    empty, text, cut = (folder / f"{name}.parquet" for name in ("empty", "text", "cut"))
    empty.write_bytes(b"")
    text.write_text("no Parquet at all")
    cut.write_bytes(Path(good).read_bytes()[:-20])
    for bad in (empty, text, cut):
        yield [good, bad], smq.InvalidRequest, f"{bad.name} is not a Parquet file"
    yield [good, folder / "missing.parquet"], smq.InvalidRequest, "there is no file .*missing.parquet"
    yield [good, folder], smq.InvalidRequest, folder.name
    yield [good, 7], smq.InvalidRequest, r"files\[1\] must be a path"
    other = parquet(folder / "other.parquet", pa.table({"value": [b"v"], "more": [1]}))
    yield [good, other], SchemaMismatch, "other.parquet.*more"
    yield [good, Path(good)], smq.InvalidRequest, r"files\[1\] is the same file as files\[0\]"
    linked = folder / "linked.parquet"
    linked.symlink_to(good)
    yield [linked, text, good], smq.InvalidRequest, r"files\[2\] is the same file as files\[0\]"
    opened = io.BytesIO(Path(good).read_bytes())
    yield [opened, good, opened], smq.InvalidRequest, r"files\[2\] is the same file as files\[0\]"


def test_a_bad_file_publishes_nothing_and_the_producer_goes_on(
    producer: Producer, topic: TopicInMemory, tmp_path: Path
) -> None:
    for files, error, what in bad_files(tmp_path):
        with pytest.raises(error, match=what):
            producer.publish_files(files)
    good = str(tmp_path / "good.parquet")
    with pytest.raises(smq.InvalidRequest, match=r"no column 'id'.*"):
        producer.publish_files([good], key="id")
    assert uploads(topic) == [] and DrivenSession.opened_sessions == []
    delivery = producer.publish_files([good])
    (driven,) = streams_of(topic.first)
    eventually(lambda: driven.written == [0])
    driven.ack(0, 0)
    assert delivery.result(HANG_GUARD).rows == 10


NUMBERS = pa.table({"id": [1, 2]})


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (pa.table({"id": ["text"]}), "column id: string does not fit int64: text is not a number"),
        (pa.table({"id": pa.array(["text"]).dictionary_encode()}), "column id: .* text is not a number"),
        (NUMBERS.append_column("timestamp", pa.array(["a", "b"])), "column timestamp: string does not fit"),
    ],
)
def test_a_type_that_does_not_fit_is_found_before_anything_is_uploaded(
    typed: TopicInMemory, producer: Producer, tmp_path: Path, bad: pa.Table, what: str
) -> None:
    good = parquet(tmp_path / "good.parquet", NUMBERS)
    with pytest.raises(SchemaMismatch, match=rf"^\S*bad\.parquet: default/\S+: {what}") as raised:
        producer.publish_files([good, parquet(tmp_path / "bad.parquet", bad)])
    assert raised.value.expected and uploads(typed) == []


def test_types_that_may_fit_are_uploaded(producer: Producer, topic: TopicInMemory) -> None:
    """A type that does not fit is right for a column without any value. Keys may be numbers."""
    texts = pa.array([None, None], pa.string())
    headers = pa.nulls(2, pa.list_(pa.int64()))
    tables = [
        pa.table({"value": [b"a", b"b"], "timestamp": [1, 2], "key": [1, 2], "partition": ["x", "y"]}),
        pa.table({"value": texts, "timestamp": pa.array([1, 2], pa.timestamp("us"))}),
        pa.table({"value": texts, "headers": headers}),
        pa.table({"value": pa.array([b"a", b"a"]).dictionary_encode()}),
        pa.table({"value": pa.array([], pa.string())}),
    ]
    files = [io.BytesIO() for _ in tables]
    for table, file in zip(tables, files, strict=True):
        pq.write_table(table, file)
    producer.publish_files(files)
    other = io.BytesIO()
    pq.write_table(pa.table({"value": [b"a"], "id": [7]}), other)
    producer.publish_files([other], key="id")
    assert len(uploads(topic)) == 5


def test_a_bad_value_deep_in_a_file_publishes_nothing(
    producer: Producer, topic: TopicInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_encoder, "UPLOAD_BYTES", 2000)
    monkeypatch.setattr("smq.producing.uploads.parquet_files.READ_BYTES", 500)
    times = pa.array(np.arange(1000) * 1000, pa.timestamp("ns"))
    good = pa.table({"timestamp": times, "value": [b"v"] * 1000})
    bad = good.set_column(0, "timestamp", pa.array([*range(999), 1], pa.timestamp("ns")))
    path = parquet(tmp_path / "bad.parquet", pa.concat_tables([good, bad]), row_group_size=100)
    with pytest.raises(SchemaMismatch, match=r"bad.parquet.*timestamp"):
        producer.publish_files([path])
    assert DrivenSession.opened_sessions == []


# ---- schema versions


def change_schema(topic: TopicInMemory) -> Segment:
    successor = replace(topic.segment(1, predecessors=(topic.first.name,)), schema_version=1)
    schemas = (*topic.snapshot.layout.schemas, TopicSchema(1, (ID, NOTE)))
    topic.snapshot = replace(topic.snapshot, layout=replace(topic.snapshot.layout, schemas=schemas))
    topic.set_layout([replace(topic.first, successors=(successor.name,)), successor])
    return successor


def test_a_schema_that_changes_during_the_upload_is_followed(
    typed: TopicInMemory, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    successors = []
    put_new = typed.files.put_new

    def put(path: str, data: Any) -> str:
        if not successors:
            successors.append(change_schema(typed))
        return put_new(path, data)

    monkeypatch.setattr(typed.files, "put_new", put)
    producer.write(pa.table({"id": range(10)}), by_reference=True)
    (driven,) = streams_of(successors[0])
    eventually(lambda: driven.references)
    assert driven.references[0].schema_version == 1
    assert rows_at(typed, driven.references[0]).column("note").null_count == 10


def test_a_reference_of_an_older_schema_fails_alone(typed: TopicInMemory, producer: Producer) -> None:
    delivery = producer.write(pa.table({"id": range(10)}), by_reference=True)
    eventually(lambda: DrivenSession.opened_sessions)
    session(0).opened()
    eventually(lambda: session(0).written == [0])
    streamed = producer.send({"id": 1})
    successor = change_schema(typed)
    session(0).reply(sealed=outcome_to_pb(SealOutcome(segment=typed.first.name, end=0), successors=[successor]))
    with pytest.raises(ReferenceRejected, match="write them again"):
        delivery.result(HANG_GUARD)
    (driven,) = streams_of(successor)
    eventually(lambda: driven.written == [0])
    driven.ack(0, 0)
    assert streamed.result(HANG_GUARD).offset == 0
    assert producer._engine.in_flight == 0
