"""A Fetch that waits, partitions of many segments, and offsets at the end of a partition."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from kio.index import load_request_schema
from kio.static.primitive import i32Timedelta

from smq_broker.kafka.apis import fetch as fetch_module
from smq_broker.kafka.apis.fetch import FetchApi
from smq_broker.kafka.apis.leaders import Leaders
from smq_broker.kafka.apis.offsets import LATEST, OffsetsApi
from smq_broker.kafka.executor import Blocking, LoopCalls
from smq_broker.kafka.partitions.histories import Histories
from smq_broker.kafka.partitions.primaries import Primaries
from smq_broker.kafka.partitions.tail_reader import TailRead, TailReader
from smq_broker.kafka.protocol.entities import build
from smq_broker.kafka.protocol.fetch_response import FetchedPartition
from smq_broker.kafka.protocol.messages import ClientConnection, RequestContext
from smq_broker.kafka.topics import KafkaTopics, topic_id
from smq_broker.rows.payloads import Payload
from smq_broker.rows.small_batches import SmallBatch
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout, Replica, Segment, Topic
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.model.keyspace import KeyRange, Partitioner
from smq_core.replica.log_entries import IncomingBatch
from smq_storage.object_store.store import open_store
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic
from support.waiting import HANG_GUARD

FOLLOWER = Replica("b2", "i2", "nowhere:1")
PARTITIONS = 4


class CountingReader(TailReader):
    """``reads`` counts the reads of each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[int] = Counter()
        self.reads_of_all = 0

    def read(self, hosted: HostedSegment, partition: int, offset: int, max_bytes: int) -> TailRead | None:
        self.reads[partition] += 1
        return super().read(hosted, partition, offset, max_bytes)

    def read_all(self, hosted: HostedSegment, partition: int) -> TailRead | None:
        self.reads_of_all += 1
        return super().read_all(hosted, partition)


class Broker:
    """A broker that leads one topic, and whose follower acks at once."""

    def __init__(self) -> None:
        self.store = open_store("memory://")
        self.parts = BrokerParts("b1", self.store, spawn=lambda *_: threading.Thread())
        self.topic = make_topic(partitioner=Partitioner.KAFKA, partitions=PARTITIONS)
        self.name = self.topic.short_name
        self.hosted = self.open(make_segment(self.topic, self.parts.replica, FOLLOWER))
        self.tails = CountingReader()

    def open(self, segment: Segment, topic: Topic | None = None) -> HostedSegment:
        self.parts.opener.open(topic or self.topic, segment)
        hosted = self.parts.hosted(topic or self.topic, segment)
        with hosted as machine:
            machine.follower_connected(FOLLOWER.incarnation, 0, 1 << 20)
        return hosted

    def find(self, full: str, *, fresh: bool = False) -> tuple[Topic, Layout]:
        layout = Layout(topic=full, uid=self.topic.uid, partitions=PARTITIONS, segments=(self.hosted.segment,))
        return self.topic, layout

    def append(self, partition: int) -> None:
        batch = IncomingBatch(
            id=KafkaBatchId(-1, -1, -1),
            rows=1,
            nbytes=100,
            partition_min=partition,
            partition_max=partition,
            payload=Payload(SmallBatch([partition], [1_000_000], [], [b"v"])),
            partition_rows=((partition, 1),),
        )
        with self.hosted as machine:
            machine.append(Ignoring(), batch, 0)
        with self.hosted as machine:
            machine.follower_acked(FOLLOWER.incarnation, machine.end)

    def leaders(self) -> Leaders:
        topics = KafkaTopics(self, lambda: [self.topic.name], lambda _: None)  # type: ignore[arg-type]
        return Leaders(self.parts.registry, topics, Blocking())

    def fetch_api(self, loop: asyncio.AbstractEventLoop) -> FetchApi:
        return FetchApi(
            leaders=self.leaders(),
            tails=self.tails,
            histories=Histories(self.store),
            blocking=Blocking(),
            calls=LoopCalls(loop),
        )


class Ignoring:
    def acked(self, acks: object) -> None: ...
    def wake(self) -> None: ...
    def fail(self, error: object) -> None: ...


def request(
    broker: Broker, *, offsets: dict[int, int], wait_seconds: float, version: int = 12, min_bytes: int = 1
) -> Any:
    partitions = [{"partition": it, "fetch_offset": at, "partition_max_bytes": 1 << 20} for it, at in offsets.items()]
    topics = [{"topic": broker.name, "topic_id": topic_id(broker.topic.uid), "partitions": partitions}]
    return build(
        load_request_schema(1, version),
        {
            "replica_id": -1,
            "max_wait": i32Timedelta.parse(timedelta(seconds=wait_seconds)),
            "min_bytes": min_bytes,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "topics": topics,
            "forgotten_topics_data": (),
            "rack_id": "",
        },
    )


async def fetch(api: FetchApi, body: Any, version: int = 12) -> list[FetchedPartition]:
    response = await api.fetch(body, RequestContext(None, version, ClientConnection("peer:1")))
    return [it for topic in response.topics for it in topic.partitions]


async def test_the_next_fetch_of_a_connection_ends_the_wait_of_the_one_before() -> None:
    """Its response comes first, so that it would delay the next one."""
    broker = Broker()
    api, context = broker.fetch_api(asyncio.get_running_loop()), RequestContext(None, 12, ClientConnection("peer:1"))
    waiting = asyncio.ensure_future(api.fetch(request(broker, offsets={0: 0}, wait_seconds=10 * HANG_GUARD), context))
    other = asyncio.ensure_future(fetch(api, request(broker, offsets={1: 0}, wait_seconds=10 * HANG_GUARD)))
    await asyncio.sleep(0)
    await asyncio.wait_for(api.fetch(request(broker, offsets={}, wait_seconds=0), context), HANG_GUARD)
    (topic,) = (await asyncio.wait_for(waiting, HANG_GUARD)).topics
    assert [(it.high_watermark, it.error_code) for it in topic.partitions] == [(0, 0)]
    assert not other.done(), "one of another connection waits on"
    other.cancel()


async def until(condition: Any) -> None:
    async with asyncio.timeout(HANG_GUARD):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture
def broker() -> Broker:
    return Broker()


async def test_a_fetch_that_waits_reads_only_what_has_changed(broker: Broker) -> None:
    api = broker.fetch_api(asyncio.get_running_loop())
    offsets = {0: 0, 1: 0, 2: 0}
    waiting = asyncio.ensure_future(fetch(api, request(broker, offsets=offsets, wait_seconds=HANG_GUARD)))
    await until(lambda: broker.tails.reads.total() == 3)
    broker.append(3)  # which the client does not read
    for _ in range(100):
        await asyncio.sleep(0)
    assert broker.tails.reads.total() == 3 and not waiting.done()
    broker.append(1)
    found = await waiting
    assert [bool(it.records) for it in found] == [False, True, False]
    assert broker.tails.reads == {0: 1, 1: 2, 2: 1}


async def test_a_fetch_that_waits_for_many_bytes_encodes_each_message_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = fetch_module.encode_entries

    def counting(hosted: Any, partition: int, offset: int, entries: tuple[Any, ...]) -> bytearray:
        encoded.append(len(entries))
        return encode(hosted, partition, offset, entries)

    monkeypatch.setattr(fetch_module, "encode_entries", counting)
    api = broker.fetch_api(asyncio.get_running_loop())
    body = request(broker, offsets={0: 0}, wait_seconds=HANG_GUARD, min_bytes=300)
    waiting = asyncio.ensure_future(fetch(api, body))
    await until(lambda: broker.tails.reads[0] == 1)
    for number in range(1, 10):
        if waiting.done():
            break
        broker.append(0)
        await until(lambda number=number: len(encoded) == number)  # type: ignore[misc]
        await asyncio.sleep(0)
    (found,) = await waiting
    assert set(encoded) == {1}
    batches = [DefaultRecordBatch(bytes(it)) for it in found.records]
    assert [record.offset for batch in batches for record in batch] == list(range(len(encoded)))
    assert sum(map(len, found.records)) >= 300


async def test_a_fetch_that_waits_ends_when_its_segment_is_sealed(broker: Broker) -> None:
    api = broker.fetch_api(asyncio.get_running_loop())
    waiting = asyncio.ensure_future(fetch(api, request(broker, offsets={0: 0, 1: 0}, wait_seconds=HANG_GUARD)))
    await until(lambda: broker.tails.reads.total() == 2)
    with broker.hosted as machine:
        machine.fence()
    with broker.hosted as machine:
        machine.sealed(SealOutcome(segment=broker.hosted.name, end=0))
    assert {it.error_code for it in await waiting} == {6}


async def test_nobody_has_an_id_of_zeros(broker: Broker) -> None:
    api = broker.fetch_api(asyncio.get_running_loop())
    body = request(broker, offsets={0: 0}, wait_seconds=0, version=17)
    topics = tuple(replace(it, topic_id=None) for it in body.topics)  # as kio decodes it
    found = await fetch(api, replace(body, topics=topics), 17)
    assert [it.error_code for it in found] == [100]


async def test_a_fetch_of_a_former_topic_of_the_name_gets_nothing(broker: Broker) -> None:
    api = broker.fetch_api(asyncio.get_running_loop())
    broker.append(0)
    body = request(broker, offsets={0: 0}, wait_seconds=0, version=17)
    assert [bool(it.records) for it in await fetch(api, body, 17)] == [True]
    broker.topic = replace(broker.topic, uid="0" * 32)
    with broker.hosted as machine:
        machine.fence()
    with broker.hosted as machine:
        machine.sealed(SealOutcome(segment=broker.hosted.name, end=1))
    broker.hosted = broker.open(make_segment(broker.topic, broker.parts.replica, FOLLOWER), broker.topic)
    broker.append(0)
    assert [it.error_code for it in await fetch(api, body, 17)] == [100]


def test_a_partition_is_found_in_its_newest_segment(broker: Broker) -> None:
    primaries = Primaries(broker.parts.registry)
    assert primaries.find(broker.topic.name, 3) is broker.hosted
    assert primaries.find(broker.topic.name, PARTITIONS) is None and primaries.find("default/other", 0) is None
    upper = replace(broker.hosted.segment, name="t-2-4-9", number=9, range=KeyRange(2, 4))
    newer = broker.open(upper)
    assert primaries.find(broker.topic.name, 1) is broker.hosted
    assert primaries.find(broker.topic.name, 3) is newer
    with newer as machine:
        machine.fence()
    with newer as machine:
        machine.sealed(SealOutcome(segment=newer.name, end=0))
    assert primaries.find(broker.topic.name, 3) is broker.hosted, "the sealed one may be of a former topic"


async def test_the_end_of_a_partition_is_found_without_its_messages(broker: Broker) -> None:
    for _ in range(3):
        broker.append(2)
    api = OffsetsApi(
        leaders=broker.leaders(), tails=broker.tails, histories=Histories(broker.store), blocking=Blocking()
    )
    partitions = [{"partition_index": 2, "timestamp": LATEST, "current_leader_epoch": -1}]
    topics = [{"name": broker.name, "partitions": partitions}]
    body = build(load_request_schema(2, 5), {"replica_id": -1, "isolation_level": 0, "topics": topics})
    answer = await api.list_offsets(body, RequestContext(None, 5, ClientConnection("peer:1")))
    assert answer["topics"][0]["partitions"][0]["offset"] == 3
    assert broker.tails.reads_of_all == 0
