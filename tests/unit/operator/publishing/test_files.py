"""The files of atomic publishes: checks before the commit, copies after it, and what is kept meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from smq_core.errors import CorruptChunk, ReferenceRejected
from smq_core.model.atomic_publish import AtomicFile, LayoutMark, claim_app, commit_version, complete_version
from smq_core.model.entities import Column, Topic, TopicSchema, TopicSpec
from smq_operator.publishing.files import check_file
from smq_operator.publishing.kept_files import has_unfinished_publish, unfinished_uploads
from smq_storage.catalog import paths
from smq_storage.catalog.atomic_publishes import change_publishes
from smq_storage.catalog.filer_time import read_filer_time
from smq_storage.chunks.schemas import TIMESTAMP, message_schema
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from smq_storage.uploads.renewal import renew_upload
from smq_storage.uploads.uploaded_files import read_upload_footer
from support.data import uploads

OLD = TopicSchema(0, (Column("count", "int32"), Column("note", "string", nullable=True)))
NEW = TopicSchema(1, (Column("count", "int64"), Column("extra", "string", nullable=True)), dropped=("note",))
TOPIC = Topic("default/t", "uid", TopicSpec(partitions=8, key="count", schema=OLD.columns))
HOUR = 3600 * 1_000_000


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
    return AtomicFile("u.parquet", written.etag, 4, written.size, 1, 4)


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


def test_files_are_kept_until_the_publish_is_complete(store: Store, file: AtomicFile) -> None:
    def change(step) -> None:
        change_publishes(store, TOPIC.name, TOPIC.uid, step, RetryPolicy(5.0))

    assert not unfinished_uploads(store, TOPIC)
    change(lambda it: claim_app(it, "etl", "me", "p", 0))
    assert not has_unfinished_publish(store, TOPIC)
    change(lambda it: commit_version(it, "etl", "me", 1, "r", [file], LayoutMark(1, (0,), 1), 0)[0])
    assert unfinished_uploads(store, TOPIC) == {"u.parquet"} and has_unfinished_publish(store, TOPIC)
    change(lambda it: complete_version(it, "etl", 1, 0))
    assert not unfinished_uploads(store, TOPIC) and not has_unfinished_publish(store, TOPIC)
