"""A topic whose sealed segments have many small chunks, made without brokers. The column ``number`` is the offset."""

from __future__ import annotations

import pyarrow as pa

from smq_core.model.entities import (
    ChunkInfo,
    Durability,
    Layout,
    Phase,
    Reason,
    SealedSegment,
    Segment,
    Topic,
    TopicSpec,
)
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import layouts, sealed_index
from smq_storage.catalog.topics import put_current, put_topic, read_current
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store.store import Store
from smq_storage.tables.manifests import write_manifest
from smq_storage.tables.range_reader import read_range
from smq_storage.tables.segment_files import StoredSegment
from support.data.sealed_topic import HOLDER
from support.data.stored_segment import COLUMNS, manifest_of_chain, rows_of

NAME, UID = "default/t", "uid-1"
RANGE = KeyRange(0, 16)
ROWS = 3
"""The rows of one chunk."""


def segment_name(number: int = 0) -> str:
    return f"t-0-16-{number}"


def make_topic(store: Store, segments: int = 1, chunks: int = 20) -> Topic:
    """Its segments 0 .. segments - 1 are a chain, sealed at 1, 2, 3, ... seconds. The next one is open."""
    topic = Topic(NAME, UID, TopicSpec(partitions=16, schema=COLUMNS, key="text"))
    known = read_current(store, NAME)
    put_current(store, NAME, UID, known[1] if known else None)
    put_topic(store, topic)
    sealed_index.append(store, NAME, UID, [_write_segment(store, number, chunks) for number in range(segments)])
    before = (segment_name(segments - 1),) if segments else ()
    it = Segment(segment_name(segments), segments, RANGE, Phase.OPEN, Durability.STORED, (HOLDER,), before)
    layouts.put_layout(store, Layout(NAME, UID, 16, 1, segments + 1, (it,), writer="w"), None)
    return topic


def _write_segment(store: Store, number: int, chunks: int) -> SealedSegment:
    name, end = segment_name(number), chunks * ROWS
    chain = ChunkChain(store, NAME, UID, name)
    for first in range(0, end, ROWS):
        info = ChunkInfo(name, first, ROWS, "w", f"n{first}")
        chain.put(info, [(rows_of(first, ROWS), 1)], chunk_schema(COLUMNS), key="text")
    chain.put_seal(ChunkInfo(name, end, 0, "w", "seal", sealed=True))
    manifest = manifest_of_chain(chain, "text")
    assert manifest is not None
    return SealedSegment(
        name,
        number,
        RANGE,
        end,
        (segment_name(number - 1),) if number else (),
        (segment_name(number + 1),),
        Reason.ROLL,
        Reason.ROLL,
        number * 1_000_000,
        (number + 1) * 1_000_000,
        manifest=write_manifest(store, NAME, UID, manifest),
    )


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
