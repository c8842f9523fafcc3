"""A verification names each file that is missing, altered or wrong, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq_core.errors import UnknownTopic
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Column, RemovedSegment, Topic, TopicSchema
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import layouts, paths, sealed_index
from smq_storage.catalog.sealed_index import IndexPage
from smq_storage.catalog.topics import put_topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import encode_chunk
from smq_storage.chunks.schemas import chunk_schema, without_append_time
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import from_json, to_json
from smq_storage.object_store.store import Store, open_store
from smq_storage.tables.file_lists import write_file_list
from smq_storage.uploads.upload_format import KEY
from smq_storage.verification.topic_files import TopicFiles
from support.data import uploads
from support.data.raw_flight import rows
from support.data.sealed_topic import END, ROWS, make_topic, segment_name
from support.data.stored_segment import file_list_of_chain

SEALED, OPEN = segment_name(0), segment_name(2)
UPLOAD = "u.parquet"


class StoredTopic:
    """Two sealed segments, the first one with a file list, and an open one with rows and a reference."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.topic: Topic = make_topic(self.store, 2)
        file_list = file_list_of_chain(self.chain(SEALED))
        assert file_list is not None
        self.file_list = write_file_list(self.store, self.topic.name, self.topic.uid, file_list)
        assert sealed_index.name_file_list(self.store, self.topic.name, self.topic.uid, SEALED, "", self.file_list)
        self.messages = pa.Table.from_batches([rows([b"a", b"b"], partition=p) for p in (1, 5, 9)])
        upload = uploads.write(self.store, self.topic.uid, UPLOAD, self.messages)
        self.footer = upload.footer
        self.write_rows(0, partition=3)
        info = ChunkInfo(
            segment=OPEN,
            first=2,
            rows=6,
            writer="w",
            nonce="n2",
            reference=upload.reference(KeyRange(0, 16)),
            appended=5,
        )
        self.chain(OPEN).put(info, [], chunk_schema())

    def chain(self, segment: str) -> ChunkChain:
        return ChunkChain(self.store, self.topic.name, self.topic.uid, segment)

    def chunk(self, segment: str, first: int) -> str:
        return self.chain(segment).path(first)

    @property
    def upload(self) -> str:
        return paths.uploaded_file(self.topic.uid, UPLOAD)

    @property
    def page(self) -> str:
        return paths.index_page(self.topic.name, self.topic.uid, 0)

    def write_rows(self, first: int, partition: int, **info: Any) -> None:
        """Replaces the open segment's chunk of two rows."""
        found = replace(ChunkInfo(segment=OPEN, first=first, rows=2, writer="w", nonce=f"n{first}"), **info)
        data = encode_chunk([(rows([b"a", b"b"], partition=partition), 1)], found, chunk_schema())
        self.store.put(self.chunk(OPEN, first), data)

    def refer_to_other_upload(self, partitions: list[int]) -> None:
        """The upload and the reference to it fit each other, and its rows have these partitions."""
        sink = pa.BufferOutputStream()
        sorted_ = uploads.write(self.store, self.topic.uid, "other.parquet", self.messages).table
        table = sorted_.set_column(0, sorted_.schema.field(0), pa.array(partitions, pa.int32()))
        with pq.ParquetWriter(sink, table.schema) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({KEY: to_json(self.footer).decode()})
        etag = self.store.put(self.upload, sink.getvalue())
        found = self.chain(OPEN).info(2)
        assert found is not None and found.reference is not None
        changed = replace(found, reference=replace(found.reference, etag=etag, bytes=len(sink.getvalue())))
        self.store.put(self.chunk(OPEN, 2), encode_chunk([], changed, chunk_schema()))

    def change_index(self, change: Callable[[IndexPage], IndexPage]) -> None:
        self.store.put(self.page, to_json(change(from_json(IndexPage, self.store.get(self.page).data))))

    def problems(self, *, rows: bool = False) -> list[tuple[str, str]]:
        return [(it.path, it.what) for it in TopicFiles(self.store, self.topic.name, rows=rows).problems()]


@pytest.fixture
def stored() -> StoredTopic:
    return StoredTopic()


@pytest.mark.parametrize("rows", [False, True])
def test_a_whole_topic_has_no_problem(stored: StoredTopic, rows: bool) -> None:
    files = TopicFiles(stored.store, stored.topic.name, rows=rows)
    assert list(files.problems()) == []
    assert (files.segments, files.files, files.messages) == (3, 2 * 3 + 2, 2 * END + 8)


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed and open segments", "an open segment alone"])
def test_a_layout_that_is_missing_is_a_problem_unless_the_topic_is_being_created(
    stored: StoredTopic, is_sealed: bool
) -> None:
    layout = paths.layout(stored.topic.name, stored.topic.uid)
    stored.store.delete(layout)
    if not is_sealed:
        stored.store.delete(stored.page)
        for segment in (SEALED, segment_name(1)):
            for found in list(stored.store.list(paths.segment_folder(stored.topic.name, stored.topic.uid, segment))):
                stored.store.delete(found.path)
    ((path, what), *_) = stored.problems()
    assert path == layout and "is missing" in what and "smq topic recover" in what
    for found in list(stored.store.list(paths.topic_folder(stored.topic.name, stored.topic.uid))):
        if found.path.endswith(".parquet") or found.path == stored.page:
            stored.store.delete(found.path)
    assert stored.problems() == []


def test_who_may_list_no_uploads_learns_that_none_were_listed(
    stored: StoredTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.store.delete(stored.upload)
    ((path, what),) = stored.problems()
    assert path == stored.upload and what.startswith("is missing; t-")
    monkeypatch.setattr(stored.store._reads, "lists_uploads", False)
    ((path, what),) = stored.problems()
    assert path == stored.upload and "no listing was made" in what and "AWS_ACCESS_KEY_ID" in what


def wrong_end(page: IndexPage) -> IndexPage:
    return replace(page, entries=(page.entries[0], replace(page.entries[1], end=END + 1)))


DAMAGES: dict[str, tuple[Callable[[StoredTopic], object], Callable[[StoredTopic], str], str]] = {
    "a chunk is gone": (
        lambda it: it.store.delete(it.chunk(SEALED, ROWS)),
        lambda it: it.chunk(SEALED, ROWS),
        f"is missing: {SEALED} ends at offset {END}",
    ),
    "a seal chunk is gone": (
        lambda it: it.store.delete(it.chunk(SEALED, END)),
        lambda it: it.chunk(SEALED, END),
        "is missing",
    ),
    "a chunk is no Parquet": (
        lambda it: it.store.put(it.chunk(SEALED, ROWS), b"something else"),
        lambda it: it.chunk(SEALED, ROWS),
        "not a Parquet file",
    ),
    "a chunk of another segment": (
        lambda it: it.write_rows(0, 3, segment="another"),
        lambda it: it.chunk(OPEN, 0),
        "is the chunk of another at offset 0",
    ),
    "a chunk with fewer rows than it says": (
        lambda it: it.write_rows(0, 3, rows=3),
        lambda it: it.chunk(OPEN, 0),
        "has 2 rows, but its metadata says 3",
    ),
    "a chunk was written again": (
        lambda it: it.store.put(it.chunk(SEALED, 0), bytes(it.store.get(it.chunk(SEALED, 0)).data)),
        lambda it: paths.file_list(it.topic.name, it.topic.uid, it.file_list),
        "lists another file than the chunk chain has at offset 0",
    ),
    "a file list is gone": (
        lambda it: it.store.delete(paths.file_list(it.topic.name, it.topic.uid, it.file_list)),
        lambda it: paths.file_list(it.topic.name, it.topic.uid, it.file_list),
        "is missing, although the index names it",
    ),
    "a file list is no JSON": (
        lambda it: it.store.put(paths.file_list(it.topic.name, it.topic.uid, it.file_list), b"{"),
        lambda it: paths.file_list(it.topic.name, it.topic.uid, it.file_list),
        "cannot be understood",
    ),
    "an index with another end": (
        lambda it: it.change_index(wrong_end),
        lambda it: it.chunk(segment_name(1), END),
        f"seals {segment_name(1)} at offset {END}, but the index at {END + 1}",
    ),
    "an index without a predecessor": (
        lambda it: it.change_index(lambda page: replace(page, entries=page.entries[1:])),
        lambda it: paths.index_folder(it.topic.name, it.topic.uid),
        f"lacks {SEALED}",
    ),
    "an index that is no JSON": (lambda it: it.store.put(it.page, b"{"), lambda it: it.page, ""),
    "a layout that is no JSON": (
        lambda it: it.store.put(paths.layout(it.topic.name, it.topic.uid), b"{"),
        lambda it: paths.layout(it.topic.name, it.topic.uid),
        "",
    ),
    "an upload is gone": (
        lambda it: it.store.delete(it.upload),
        lambda it: it.upload,
        f"is missing; {OPEN} has the messages 2 to 7 there",
    ),
    "an upload was altered": (
        lambda it: uploads.write(it.store, it.topic.uid, UPLOAD, it.messages.slice(0, 5)),
        lambda it: it.upload,
        "was altered: its etag is",
    ),
    "an upload is no Parquet": (lambda it: it.store.put(it.upload, b"x"), lambda it: it.upload, "not a Parquet file"),
    "an upload whose statistics contradict its footer": (
        lambda it: it.refer_to_other_upload([1, 1, 5, 5, 9, 10]),
        lambda it: it.upload,
        "does not fit its reference (footer)",
    ),
}


@pytest.mark.parametrize(("damage", "path", "words"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_named_alone(
    stored: StoredTopic, damage: Callable[[StoredTopic], object], path: Callable[[StoredTopic], str], words: str
) -> None:
    damage(stored)
    ((found, what),) = stored.problems()
    assert found == path(stored) and words in what


@pytest.mark.parametrize(
    ("damage", "path", "words"),
    [
        (lambda it: it.write_rows(0, 16), lambda it: it.chunk(OPEN, 0), "has partitions 16 to 16 from offset 0 on"),
        (lambda it: it.refer_to_other_upload([1, 5, 1, 5, 9, 9]), lambda it: it.upload, "the rows 0 to 5 have other"),
        (lambda it: it.refer_to_other_upload([1, 1, 9, 5, 5, 9]), lambda it: it.upload, "the rows 0 to 5 have other"),
    ],
    ids=["partitions of another segment", "partitions out of order", "rows outside of their partitions"],
)
def test_wrong_rows_are_found_only_when_they_are_read(
    stored: StoredTopic, damage: Callable[[StoredTopic], object], path: Callable[[StoredTopic], str], words: str
) -> None:
    damage(stored)
    assert stored.problems() == []
    ((found, what),) = stored.problems(rows=True)
    assert found == path(stored) and words in what


def test_a_segment_that_retention_removes_meanwhile_is_no_problem(
    stored: StoredTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, load = stored.topic, sealed_index.load
    loaded = []

    def remove_after_the_first_load(store: Store, name: str, uid: str) -> Any:
        found = load(store, name, uid)
        if not loaded:
            loaded.append(found)
            removal = RemovedSegment(name=SEALED, number=0, end=END, removed_at=1)
            sealed_index.remove(store, topic.name, topic.uid, [removal], RetryPolicy())
            store.delete(stored.chunk(SEALED, END))
        return found

    monkeypatch.setattr(sealed_index, "load", remove_after_the_first_load)
    assert stored.problems() == []


def prune_schemas(stored: StoredTopic) -> None:
    """All segments have version 1 of the schema, but only the columns of the versions 0 and 2 are known."""
    topic = stored.topic
    put_topic(stored.store, replace(topic, spec=replace(topic.spec, schema=(Column("first", "int32"),))))
    stored.change_index(lambda page: replace(page, entries=tuple(replace(it, schema_version=1) for it in page.entries)))
    found = layouts.read_layout(stored.store, topic.name, topic.uid)
    assert found is not None
    segments = tuple(replace(it, schema_version=1) for it in found[0].segments)
    pruned = replace(found[0], segments=segments, schemas=(TopicSchema(2, (Column("third", "int64"),)),))
    layouts.put_layout(stored.store, pruned, found[1])


def test_a_segment_whose_schema_nothing_has_any_more_is_compared_with_itself(stored: StoredTopic) -> None:
    prune_schemas(stored)
    assert stored.problems() == [], "no chunk is compared with the columns of another version"
    path = stored.chunk(SEALED, ROWS)
    other = chunk_schema((Column("first", "int32"),))
    info = stored.chain(SEALED).info(ROWS)
    assert info is not None
    batch = pa.RecordBatch.from_pylist(
        [{"partition": 1, "timestamp": 0, "first": 1}] * ROWS, without_append_time(other)
    )
    stored.store.put(path, encode_chunk([(batch, 1)], info, other))
    assert (path, "has the columns") in [(path, what[:15]) for path, what in stored.problems()]


def test_an_unknown_topic(stored: StoredTopic) -> None:
    with pytest.raises(UnknownTopic, match="default/other"):
        list(TopicFiles(stored.store, "default/other").problems())
