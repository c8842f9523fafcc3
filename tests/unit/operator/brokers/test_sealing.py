"""The leader seals a segment at the end of its chain when no replica can."""

from __future__ import annotations

from smq_core.model.entities import ChunkInfo, ProducerState, Topic, TopicSpec
from smq_core.model.lost_range import LostRange
from smq_core.sealing.seal_coordinator import SealFromFiler
from smq_operator.brokers.sealing import SealExecutor
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import group_positions, paths
from smq_storage.catalog.group_positions import CommittedPositions
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import chunk_schema
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.brokers import FakeFleet

TOPIC, SEGMENT = Topic("default/t", "uid", TopicSpec()), "t-0-256-0"


class ChainOfDeadBrokers:
    def __init__(self) -> None:
        self.store = store = open_store("memory://")
        self.chain = ChunkChain(store, TOPIC.name, TOPIC.uid, SEGMENT)
        self.executor = SealExecutor(
            StorePool(store, None), FakeFleet(store), lambda replica: replica, RetryPolicy(2.0), "leader-1"
        )

    def write(self, first: int, count: int, producers: dict[str, ProducerState], snapshot_at: int | None) -> None:
        info = ChunkInfo(SEGMENT, first, count, "b", f"n{first}", producers=producers, snapshot_at=snapshot_at)
        assert self.chain.put(info, [(rows([b"v"] * count), 5)], chunk_schema()) == info

    async def seal(self, *, open_ended: bool = False) -> ChunkInfo:
        step = SealFromFiler(SEGMENT, known_watermark=0, open_ended=open_ended)
        outcome = await self.executor.seal_from_filer(TOPIC, step)
        (*_, last) = self.chain.walk()
        assert last.sealed and last.outcome == outcome
        return last


P, Q = ProducerState(1, 0, (0,), "p-1", 5), ProducerState(1, 0, (2,), "q-1", 5)


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
        committed = CommittedPositions(1, {SEGMENT: position, "another": 50}, writer=group)
        group_positions.put_positions(dead.store, TOPIC.name, TOPIC.uid, group, committed, None)
    dead.store.put(paths.group(TOPIC.name, TOPIC.uid, "damaged"), b"{")
    assert (await dead.seal(open_ended=True)).lost == LostRange(2, 7, open_ended=True)


async def test_a_seal_that_was_made_earlier_is_found() -> None:
    dead = ChainOfDeadBrokers()
    dead.write(0, 2, {"p": P}, snapshot_at=None)
    assert await dead.executor.find_seal(TOPIC, SEGMENT) is None
    seal = await dead.seal()
    assert await dead.executor.find_seal(TOPIC, SEGMENT) == seal.outcome
    again = await dead.seal()
    assert again == seal, "sealing again changes nothing"
