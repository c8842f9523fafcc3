"""A topic whose sealed segments have many small chunks, made without brokers. The column ``number`` is the offset."""

from __future__ import annotations

import pyarrow as pa

from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import SealedSegment, Topic, TopicSpec
from smq_storage.catalog import sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import write_file_list
from smq_storage.tables.range_reader import read_range
from smq_storage.tables.segment_files import StoredSegment
from support.data import sealed_topic
from support.data.sealed_topic import put_chain, sealed_entry
from support.data.stored_segment import COLUMNS, file_list_of_chain, rows_of

NAME, UID = "default/t", "uid-1"
# The rows of one chunk.
ROWS = 3


def segment_name(number: int = 0) -> str:
    return sealed_topic.segment_name(number)


def make_topic(store: Store, segments: int = 1, chunks: int = 20) -> Topic:
    """Its segments 0 .. segments - 1 are a chain, sealed at 1, 2, 3, ... seconds. The next one is open."""
    topic = Topic(NAME, UID, TopicSpec(partitions=16, schema=COLUMNS, key="text"))
    put_chain(store, topic, [_write_segment(store, number, chunks) for number in range(segments)])
    return topic


def _write_segment(store: Store, number: int, chunks: int) -> SealedSegment:
    name, end = segment_name(number), chunks * ROWS
    chain = ChunkChain(store, NAME, UID, name)
    for first in range(0, end, ROWS):
        info = ChunkInfo(segment=name, first=first, rows=ROWS, writer="w", nonce=f"n{first}")
        chain.put(info, [(rows_of(first, ROWS), 1)], chunk_schema(COLUMNS), key="text")
    chain.put_seal(ChunkInfo(segment=name, first=end, rows=0, writer="w", nonce="seal", sealed=True))
    file_list = file_list_of_chain(chain, "text")
    assert file_list is not None
    return sealed_entry(number, end, file_list=write_file_list(store, NAME, UID, file_list))


def index_of(store: Store) -> list[SealedSegment]:
    return sealed_index.read(store, NAME, UID)


def stored(store: Store, number: int = 0) -> StoredSegment:
    """The segment as the index has it now."""
    return next(StoredSegment.of(NAME, UID, entry) for entry in index_of(store) if entry.number == number)


def numbers(store: Store, segment: StoredSegment, start: int = 0) -> list[int]:
    """The column ``number`` of its messages from ``start`` on."""
    assert segment.end is not None
    tables = [table for _, table in read_range(store, segment, start, segment.end, ["number"])]
    return pa.concat_tables(tables)["number"].to_pylist()  # type: ignore[no-any-return]
