"""The leader seals a segment at the end of its chain when no replica can."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.model import layout_transitions as layouts
from smq_core.model.chunk_info import ChunkInfo, ProducerState
from smq_core.model.entities import Column, Durability, Replica, Topic, TopicSchema, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_core.sealing.seal_coordinator import SealFromFiler
from smq_operator.brokers.sealing import SealExecutor
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import group_positions, paths
from smq_storage.catalog.group_positions import CommittedPositions
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.chunks.parquet_codec import chunk_schema
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.brokers import FakeFleet

TOPIC, SEGMENT = Topic("default/t", "uid", TopicSpec()), "t-0-256-0"
LAYOUT = layouts.create(
    TOPIC.name,
    TOPIC.uid,
    256,
    [layouts.Successor(KeyRange(0, 256), (Replica("b", "b.1", "h:1"),), Durability.STORED)],
    now=0,
    writer="w",
)


class ChainOfDeadBrokers:
    def __init__(self) -> None:
        self.store = store = open_store("memory://")
        self.chain = ChunkChain(store, TOPIC.name, TOPIC.uid, SEGMENT)
        self.executor = SealExecutor(
            store=StorePool(store, None, RetryPolicy(2.0)),
            brokers=FakeFleet(store),
            receiver=lambda replica: replica,
            writer_id="leader-1",
        )

    def write(self, first: int, count: int, producers: dict[str, ProducerState], snapshot_at: int | None) -> None:
        info = ChunkInfo(
            segment=SEGMENT,
            first=first,
            rows=count,
            writer="b",
            nonce=f"n{first}",
            producers=producers,
            snapshot_at=snapshot_at,
        )
        assert isinstance(self.chain.put(info, [(rows([b"v"] * count), 5)], chunk_schema()), StoredChunk)

    async def seal(self, *, at_least: bool = False) -> ChunkInfo:
        step = SealFromFiler(SEGMENT, known_watermark=0, at_least=at_least)
        outcome = await self.executor.seal_from_filer(TOPIC, LAYOUT, step)
        (*_, last) = self.chain.walk()
        assert last.sealed and last.outcome == outcome
        return last


P, Q = (
    ProducerState(epoch=1, last_sequence=0, recent=(0,), instance="p-1", appended=5),
    ProducerState(epoch=1, last_sequence=0, recent=(2,), instance="q-1", appended=5),
)


async def test_the_seal_has_the_producers_of_all_chunks() -> None:
    dead = ChainOfDeadBrokers()
    dead.write(0, 2, {"p": P}, snapshot_at=None)
    dead.write(2, 2, {"q": Q}, snapshot_at=0)
    seal = await dead.seal()
    assert (seal.first, seal.producers) == (4, {"p": P, "q": Q})
    assert seal.writer == "leader-1"


async def test_the_seal_is_at_the_end_even_if_the_chunk_with_all_producers_is_missing() -> None:
    dead = ChainOfDeadBrokers()
    dead.write(0, 2, {"p": P}, snapshot_at=None)
    dead.write(2, 2, {"q": Q}, snapshot_at=1)
    seal = await dead.seal()
    assert (seal.first, seal.producers) == (4, {"p": P, "q": Q})


async def test_the_seal_has_what_groups_have_read_beyond_the_end() -> None:
    dead = ChainOfDeadBrokers()
    dead.write(0, 2, {"p": P}, snapshot_at=None)
    for group, position in (("ahead", 7), ("behind", 1)):
        committed = CommittedPositions(generation=1, positions={SEGMENT: position, "another": 50}, writer=group)
        group_positions.put_positions(dead.store, TOPIC.name, TOPIC.uid, group, committed, None)
    dead.store.put(paths.group(TOPIC.name, TOPIC.uid, "damaged"), b"{")
    assert (await dead.seal(at_least=True)).lost == Loss(2, 7, at_least=True)


async def test_a_seal_that_was_made_earlier_is_found() -> None:
    dead = ChainOfDeadBrokers()
    dead.write(0, 2, {"p": P}, snapshot_at=None)
    assert await dead.executor.find_seal(TOPIC, SEGMENT) is None
    seal = await dead.seal()
    assert await dead.executor.find_seal(TOPIC, SEGMENT) == seal.outcome
    again = await dead.seal()
    assert again == seal, "sealing again changes nothing"


async def test_the_seal_has_the_schema_of_its_segment() -> None:
    dead = ChainOfDeadBrokers()
    schemas = tuple(TopicSchema(version, (Column(f"c{version}", "int8"),)) for version in range(3))
    second = replace(LAYOUT.segments[0], schema_version=1)
    layout = replace(LAYOUT, segments=(second,), schemas=schemas)
    await dead.executor.seal_from_filer(TOPIC, layout, SealFromFiler(SEGMENT, known_watermark=0, at_least=False))
    (seal,) = dead.chain.walk()
    assert seal.schema_version == 1
    (chunk,) = dead.chain.files()
    stored = pq.read_schema(pa.BufferReader(dead.store.get(chunk.path).data))
    assert stored.names == chunk_schema(schemas[1].columns).names
