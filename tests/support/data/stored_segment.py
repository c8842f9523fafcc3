"""A segment in a store, written without brokers, and a store that counts what is requested of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from smq_core.file_lists.file_list import FileList
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Column
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import TIMESTAMP, chunk_schema
from smq_storage.object_store.store import ObjectInfo, ObjectTail, Store, StoredObject
from smq_storage.tables.file_lists import write_file_list
from smq_storage.tables.file_statistics import file_entry
from smq_storage.tables.segment_files import StoredSegment

TOPIC, UID, SEGMENT = "ns/t", "uid", "t-0-8-0"
COLUMNS = (Column("number", "int64"), Column("text", "string"), Column("blob", "binary"))


def rows_of(first: int, count: int, blob_bytes: int = 8) -> pa.RecordBatch:
    """Rows on the wire whose ``number`` is their offset; ``blob`` does not compress."""

    random.seed(first)
    arrays = {
        "partition": pa.array([0] * count, pa.int32()),
        "timestamp": pa.array(range(first, first + count), TIMESTAMP),
        "number": pa.array(range(first, first + count), pa.int64()),
        "text": pa.array([f"text {i}" for i in range(first, first + count)]),
        "blob": pa.array([random.randbytes(blob_bytes) for _ in range(count)]),
        "headers": pa.nulls(count, chunk_schema(COLUMNS).field("headers").type),
    }
    schema = chunk_schema(COLUMNS).remove(chunk_schema(COLUMNS).get_field_index("appended"))
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)


def write_segment(store: Store, *sizes: int, blob_bytes: int = 8, file_list: bool = True) -> StoredSegment:
    """A sealed segment with chunks of that number of rows. The chunk at offset n was appended at n microseconds."""
    chain = ChunkChain(store, TOPIC, UID, SEGMENT)
    at = 0
    for size in sizes:
        info = ChunkInfo(segment=SEGMENT, first=at, rows=size, writer="w", nonce=f"n{at}")
        chain.put(info, [(rows_of(at, size, blob_bytes), at)], chunk_schema(COLUMNS), key="number")
        at += size
    chain.put_seal(ChunkInfo(segment=SEGMENT, first=at, rows=0, writer="w", nonce="seal", sealed=True))
    made = file_list_of_chain(chain, "number")
    assert made is not None
    name = write_file_list(store, TOPIC, UID, made) if file_list else ""
    return StoredSegment(topic=TOPIC, uid=UID, name=SEGMENT, end=at, file_list=name)


def file_list_of_chain(chain: ChunkChain, key: str | None = None) -> FileList | None:
    """The file list of a segment as its chunk chain says, or None while it is not sealed."""
    files = []
    for chunk in chain.walk_stored():
        if chunk.info.sealed:
            return FileList(segment=chain.segment, end=chunk.info.first, files=tuple(files))
        files.append(file_entry(chunk, key))
    return None


@dataclass
class Requests:
    """The requests that a store got: paths of reads in order, bytes that were read, listings."""

    reads: list[str] = field(default_factory=list)
    bytes: int = 0
    listings: int = 0


class CountingStore(Store):
    """The given store, with a count of its reads."""

    def __init__(self, store: Store) -> None:
        super().__init__(url=store.url, where=store._where, writer=store._writer, reads=store._reads)
        self.requests = Requests()

    def reset(self) -> None:
        self.requests = Requests()

    def get(self, path: str) -> StoredObject:
        found = super().get(path)
        self._count(path, found.data)
        return found

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> memoryview:
        data = super().get_range(path, start, stop, etag)
        self._count(path, data)
        return data

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        tail = super().get_tail(path, nbytes)
        self._count(path, tail.data)
        return tail

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self.requests.listings += 1
        return super().list(prefix, start_after)

    def _count(self, path: str, data: memoryview) -> None:
        self.requests.reads.append(path)
        self.requests.bytes += len(data)
