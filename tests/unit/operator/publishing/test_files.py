"""The files of atomic publishes: checks before the commit, copies after it, and what is kept meanwhile."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq_core.errors import CorruptChunk, ReferenceRejected, SmqError, StoreUnavailable, Unavailable
from smq_core.model.atomic_publish import AtomicFile, LayoutMark, claim_app, commit_version, complete_version
from smq_core.model.entities import Column, Topic, TopicSchema, TopicSpec
from smq_operator.publishing.files import check_file
from smq_operator.publishing.kept_files import has_unfinished_publish, unfinished_uploads
from smq_storage.catalog import paths
from smq_storage.catalog.atomic_publishes import change_publishes
from smq_storage.catalog.filer_time import read_filer_time
from smq_storage.chunks.schemas import TIMESTAMP, message_schema
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import to_json
from smq_storage.object_store.store import Store, StoredObject, open_store
from smq_storage.uploads import renewal
from smq_storage.uploads.renewal import renew_upload
from smq_storage.uploads.upload_format import KEY, footer_of
from smq_storage.uploads.uploaded_files import read_upload_footer
from support.data import uploads

OLD = TopicSchema(0, (Column("count", "int32"), Column("note", "string", nullable=True)))
NEW = TopicSchema(1, (Column("count", "int64"), Column("extra", "string", nullable=True)), dropped=("note",))
TOPIC = Topic("default/t", "uid", TopicSpec(partitions=8, key="count", schema=OLD.columns))
HOUR = 3600 * 1_000_000
RETRY = RetryPolicy(5.0)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def file(store: Store) -> AtomicFile:
    schema = message_schema(OLD.columns)
    values = {
        "partition": pa.array([5, 1, 5, 2], pa.int32()),
        "timestamp": pa.array([4, 1, 3, 2]).cast(TIMESTAMP),
        "count": pa.array([50, 10, 51, 20], pa.int32()),
        "note": pa.array(["a", "b", None, "c"]),
    }
    columns = [values.get(field.name, pa.nulls(4, field.type)) for field in schema]
    written = uploads.write(store, TOPIC.uid, "u.parquet", pa.table(columns, schema=schema))
    return AtomicFile(
        upload="u.parquet", etag=written.etag, rows=4, bytes=written.size, timestamp_min=1, timestamp_max=4
    )


def check(store: Store, file: AtomicFile, schema: TopicSchema = OLD, later: int = 0) -> None:
    check_file(store, TOPIC, file, schema, read_filer_time(store) + later, HOUR)


def test_a_file_that_brokers_would_reject_is_not_committed(store: Store, file: AtomicFile) -> None:
    check(store, file)
    wrong: list[tuple[str, Callable[[], None]]] = [
        ("upload", lambda: check(store, replace(file, upload="other.parquet"))),
        ("upload", lambda: check(store, replace(file, upload="../other.parquet"))),
        ("upload", lambda: check(store, replace(file, etag="other"))),
        ("upload", lambda: check(store, replace(file, bytes=file.bytes + 1))),
        ("rows", lambda: check(store, replace(file, rows=3))),
        ("timestamps", lambda: check(store, replace(file, timestamp_min=9))),
        ("schema_version", lambda: check(store, file, NEW)),
        ("age", lambda: check(store, file, later=HOUR + 10_000_000)),
    ]
    for field, call in wrong:
        with pytest.raises(ReferenceRejected) as rejected:
            call()
        assert rejected.value.field == field


def test_a_copy_has_the_new_columns_and_the_same_places(store: Store, file: AtomicFile) -> None:
    copy = renew_upload(store, TOPIC.uid, file, (OLD, NEW))
    assert copy.upload != file.upload and copy.schema_version == 1
    check(store, copy, NEW)
    old, new = (read_upload_footer(store, paths.uploaded_file(TOPIC.uid, it.upload)).parsed for it in (file, copy))
    assert new.footer.partitions == old.footer.partitions == ((1, 1), (2, 1), (5, 2))
    assert new.schema.names == message_schema(NEW.columns).names


def test_a_file_that_was_altered_or_deleted_is_not_copied(store: Store, file: AtomicFile) -> None:
    with pytest.raises(CorruptChunk, match="altered"):
        renew_upload(store, TOPIC.uid, replace(file, etag="other"), (OLD,))
    store.delete(paths.uploaded_file(TOPIC.uid, file.upload))
    with pytest.raises(CorruptChunk, match="gone"):
        renew_upload(store, TOPIC.uid, file, (OLD,))


class CountedReads:
    """A store that records how many bytes each GET has, and how much Arrow holds meanwhile. Some GETs may fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.sizes: list[int] = []
        self.allocated = 0
        self.failure: SmqError | None = None

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> memoryview:
        self.sizes.append(stop - start)
        self.allocated = max(self.allocated, pa.total_allocated_bytes())
        if self.failure is not None and len(self.sizes) > 3:
            raise self.failure
        return self._store.get_range(path, start, stop, etag)

    def get(self, path: str) -> Any:
        raise AssertionError("the whole file is read at once")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_memory_does_not_grow_with_the_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may have written all rows as one row group."""
    monkeypatch.setattr(renewal, "READ_BYTES", 1 << 14)
    monkeypatch.setattr(renewal, "BATCH_BYTES", 1 << 16)
    file = written_in_one_row_group(store, 8000)
    assert file.bytes > 1 << 20
    reads, before = CountedReads(store), pa.total_allocated_bytes()
    copy = renew_upload(cast(Store, reads), TOPIC.uid, file, (OLD, NEW))
    assert max(reads.sizes) < 1 << 17 and reads.allocated - before < 1 << 20
    groups = read_upload_footer(store, paths.uploaded_file(TOPIC.uid, copy.upload)).parsed.row_groups
    assert len(groups) > 10 and sum(rows for rows, *_ in groups) == 8000
    values = pq.read_table(io.BytesIO(store.get(paths.uploaded_file(TOPIC.uid, copy.upload)).data)).column("count")
    assert values.to_pylist() == list(range(8000))

    reads = CountedReads(store)
    reads.failure = StoreUnavailable("the filer is away")
    with pytest.raises(StoreUnavailable, match="away"):
        renew_upload(cast(Store, reads), TOPIC.uid, file, (OLD, NEW))


def test_a_copy_that_the_disk_cannot_hold_waits(
    store: Store, file: AtomicFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(Unavailable, match="leader's disk"):
        renew_upload(store, TOPIC.uid, file, (OLD, NEW))


def test_rows_that_have_no_place_in_the_new_columns_are_named(store: Store, file: AtomicFile) -> None:
    other = TopicSchema(1, (Column("count", "string"),))
    with pytest.raises(CorruptChunk, match=file.upload):
        renew_upload(store, TOPIC.uid, file, (OLD, other))


def written_in_one_row_group(store: Store, rows: int) -> AtomicFile:
    dice = Random(1)
    values = {
        "partition": pa.array([1] * rows, pa.int32()),
        "timestamp": pa.array([1] * rows).cast(TIMESTAMP),
        "count": pa.array(range(rows), pa.int32()),
        "note": pa.array([dice.randbytes(100).hex() for _ in range(rows)]),
    }
    schema = message_schema(OLD.columns)
    table = pa.table([values.get(it.name, pa.nulls(rows, it.type)) for it in schema], schema=schema)
    footer = footer_of(table, TOPIC.uid, 0, "p", 1)
    sink = io.BytesIO()
    pages = {"data_page_size": 1 << 14, "write_batch_size": 64}
    with pq.ParquetWriter(sink, schema, use_dictionary=False, **pages) as writer:
        writer.write_table(table, row_group_size=rows)
        writer.add_key_value_metadata({KEY: to_json(footer).decode()})
    etag = store.put(paths.uploaded_file(TOPIC.uid, "one.parquet"), sink.getvalue())
    return AtomicFile(
        upload="one.parquet", etag=etag, rows=rows, bytes=len(sink.getvalue()), timestamp_min=1, timestamp_max=1
    )


def test_files_are_kept_until_the_publish_is_complete(store: Store, file: AtomicFile) -> None:
    def change(step) -> None:
        change_publishes(store, TOPIC.name, TOPIC.uid, step, RETRY)

    assert not unfinished_uploads(store, TOPIC)
    change(lambda it: claim_app(it, "etl", "me", "p", 0))
    assert not has_unfinished_publish(store, TOPIC, RETRY)
    change(lambda it: commit_version(it, "etl", "me", 1, "r", [file], LayoutMark(1, (0,), 1), 0)[0])
    assert unfinished_uploads(store, TOPIC) == {"u.parquet"} and has_unfinished_publish(store, TOPIC, RETRY)
    change(lambda it: complete_version(it, "etl", 1, 0))
    assert not unfinished_uploads(store, TOPIC) and not has_unfinished_publish(store, TOPIC, RETRY)


def test_an_answer_that_is_out_of_date_holds_retention(store: Store, file: AtomicFile) -> None:
    """Otherwise the segments with rows of a publish that was committed a moment ago are removed."""
    change_publishes(store, TOPIC.name, TOPIC.uid, lambda it: claim_app(it, "etl", "me", "p", 0), RETRY)
    before = store.get(paths.publishes(TOPIC.name, TOPIC.uid))
    change_publishes(
        store,
        TOPIC.name,
        TOPIC.uid,
        lambda it: commit_version(it, "etl", "me", 1, "r", [file], LayoutMark(1, (0,), 1), 0)[0],
        RETRY,
    )

    class OutOfDate:
        """The first answer is what was there before the commit."""

        def __init__(self) -> None:
            self.answers = [before]

        def get(self, path: str) -> StoredObject:
            return self.answers.pop() if self.answers else store.get(path)

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    assert has_unfinished_publish(cast(Store, OutOfDate()), TOPIC, RETRY)
    assert unfinished_uploads(store, TOPIC) == {"u.parquet"}, "nothing was overwritten"
