"""The chain of a segment: contiguous, create-only, sealed once, found without trusting a listing."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from smq_core.errors import CorruptChunk
from smq_core.model.chunk_info import ChunkInfo, ProducerState
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.chunks.parquet_codec import TAIL_BYTES
from smq_storage.chunks.schemas import chunk_schema, message_schema
from smq_storage.object_store.conditional_writes import WriteConflict
from smq_storage.object_store.store import ObjectInfo, ObjectTail, Store, open_store

SCHEMA = chunk_schema()


class ForgetfulListing(Store):
    """Its listings show only the first ``shown`` objects; everything else is right."""

    def __init__(self, shown: int) -> None:
        real = open_store("memory://")
        super().__init__(url=real.url, where=real.url, writer=real._writer, reads=real._reads)
        self.shown = shown

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        yield from list(super().list(prefix, start_after))[: self.shown]


@pytest.fixture(params=[0, 1, 3, 99])
def chain(request: pytest.FixtureRequest) -> ChunkChain:
    """On stores whose listings are more or less old."""
    return ChunkChain(ForgetfulListing(request.param), "ns/t", "uid", "t-0")


def rows(count: int, start: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"partition": 0, "timestamp": 1, "key": None, "value": str(start + i).encode(), "headers": None}
            for i in range(count)
        ],
        schema=message_schema(),
    )


def info(first: int, count: int, writer: str = "a", nonce: str | None = None, sealed: bool = False) -> ChunkInfo:
    return ChunkInfo(
        segment="t-0", first=first, rows=count, writer=writer, nonce=nonce or f"{writer}{first}", sealed=sealed
    )


def put(chain: ChunkChain, info: ChunkInfo, batch: pa.RecordBatch) -> StoredChunk:
    stored = chain.put(info, [(batch, 5)], SCHEMA)
    assert isinstance(stored, StoredChunk)
    return stored


def fill(chain: ChunkChain, *sizes: int) -> int:
    at = 0
    for size in sizes:
        assert put(chain, info(at, size), rows(size, at)) == chain.stored(at)
        at += size
    return at


def test_an_empty_chain(chain: ChunkChain) -> None:
    assert chain.info(0) is None
    assert chain.read(0) is None
    assert list(chain.walk()) == []
    assert chain.read_seal_chunk() is None
    assert chain.find(0) is None
    assert chain.latest_hint() == 0


def test_chunks_are_walked_in_order_from_anywhere(chain: ChunkChain) -> None:
    fill(chain, 3, 1, 5)
    assert [(i.first, i.end) for i in chain.walk()] == [(0, 3), (3, 4), (4, 9)]
    assert [i.first for i in chain.walk(3)] == [3, 4]
    assert list(chain.walk(2)) == []


def test_rows_are_read_back(chain: ChunkChain) -> None:
    fill(chain, 3, 2)
    found = chain.read(3)
    assert found is not None
    assert found[0] == info(3, 2)
    assert found[1].column("value").to_pylist() == [b"3", b"4"]
    assert chain.read(3, columns=["value"])[1].column_names == ["value"]


def test_the_second_writer_of_an_offset_learns_who_was_first(chain: ChunkChain) -> None:
    fill(chain, 3)
    outcome = chain.put(info(0, 2, writer="b"), [(rows(2), 5)], SCHEMA)
    assert isinstance(outcome, WriteConflict)
    assert outcome.info == info(0, 3)
    assert chain.info(0) == info(0, 3)


def test_another_attempt_of_the_same_writer_is_another_writer(chain: ChunkChain) -> None:
    chain.put(info(0, 3, nonce="one"), [(rows(3), 5)], SCHEMA)
    assert isinstance(chain.put(info(0, 3, nonce="two"), [(rows(3), 5)], SCHEMA), WriteConflict)


def test_the_very_same_attempt_again_is_a_success(chain: ChunkChain) -> None:
    fill(chain, 3)
    assert put(chain, info(0, 3), rows(3)).info == info(0, 3)


def test_sealing_ends_the_chain(chain: ChunkChain) -> None:
    end = fill(chain, 3, 2)
    assert chain.read_seal_chunk() is None
    seal = info(end, 0, sealed=True)
    assert chain.put_seal(seal) == seal
    assert chain.read_seal_chunk() == seal
    assert list(chain.walk())[-1] == seal
    assert isinstance(chain.put(info(end, 1, writer="zombie"), [(rows(1), 5)], SCHEMA), WriteConflict)
    assert chain.info(end) == seal


@pytest.mark.parametrize("hint", [0, 3, 5, 4, 999])
def test_the_seal_is_found_from_any_hint(chain: ChunkChain, hint: int) -> None:
    end = fill(chain, 3, 2)
    assert chain.read_seal_chunk(hint) is None
    chain.put_seal(info(end, 0, sealed=True))
    assert chain.read_seal_chunk(hint) == info(end, 0, sealed=True)


def test_an_empty_segment_can_be_sealed(chain: ChunkChain) -> None:
    chain.put_seal(info(0, 0, sealed=True))
    assert chain.read_seal_chunk() == info(0, 0, sealed=True)
    assert chain.find(0) is None


@pytest.mark.parametrize("sealed", [False, True])
def test_offsets_are_found(chain: ChunkChain, sealed: bool) -> None:
    end = fill(chain, 3, 1, 5)
    if sealed:
        chain.put_seal(info(end, 0, sealed=True))
    assert [chain.find(offset) for offset in range(11)] == [0, 0, 0, 3, 4, 4, 4, 4, 4, None, None]


def test_many_producers_make_a_footer_longer_than_the_first_read() -> None:
    chain = ChunkChain(open_store("memory://"), "ns/t", "uid", "t-0")
    producers = {
        f"producer-{i}": ProducerState(epoch=1, last_sequence=64, recent=tuple(range(64))) for i in range(1200)
    }
    long = ChunkInfo(segment="t-0", first=0, rows=0, writer="w", nonce="n", sealed=True, producers=producers)
    chain.put_seal(long)
    assert chain.files()[0].size > 2 * TAIL_BYTES
    assert chain.info(0) == long


def test_files_has_sizes(chain: ChunkChain) -> None:
    store = open_store("memory://")
    chain = ChunkChain(store, "ns/t", "uid", "t-0")
    fill(chain, 3, 1)
    store.put("ns/t/uid/t-0/notes.txt", b"not a chunk")
    assert [file.path for file in chain.files()] == [chain.path(0), chain.path(3)]
    assert sum(file.size for file in chain.files()) == sum(store.head(chain.path(i)).size for i in (0, 3))
    assert chain.latest_hint() == 3


def test_a_foreign_object_under_a_chunks_name_is_named() -> None:
    store = open_store("memory://")
    chain = ChunkChain(store, "ns/t", "uid", "t-0")
    store.put(chain.path(0), b"something else entirely")
    with pytest.raises(CorruptChunk, match="t-0/00000000000000000000"):
        chain.info(0)


def test_an_info_that_disagrees_with_the_rows_is_a_mistake_of_the_caller(chain: ChunkChain) -> None:
    with pytest.raises(ValueError, match="rows"):
        chain.put(info(0, 4), [(rows(3), 5)], SCHEMA)
    with pytest.raises(ValueError, match="nonce"):
        chain.put(ChunkInfo(segment="t-0", first=0, rows=3, writer="a", nonce=""), [(rows(3), 5)], SCHEMA)
    with pytest.raises(ValueError, match="seal"):
        chain.put_seal(info(0, 0))
    assert list(chain.walk()) == []


class CountingReads(Store):
    def __init__(self) -> None:
        real = open_store("memory://")
        super().__init__(url=real.url, where=real.url, writer=real._writer, reads=real._reads)
        self.reads = 0

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        self.reads += 1
        return super().get_tail(path, nbytes)


def test_a_long_chain_is_not_walked_when_the_listing_is_right() -> None:
    store = CountingReads()
    chain = ChunkChain(store, "ns/t", "uid", "t-0")
    chain.put_seal(info(fill(chain, *[1] * 40), 0, sealed=True))
    store.reads = 0
    assert chain.find(30) == 30
    assert chain.read_seal_chunk() == info(40, 0, sealed=True)
    assert store.reads == 2
