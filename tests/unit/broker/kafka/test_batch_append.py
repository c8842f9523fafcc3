"""Kafka batches are acked when they are durable; of one without an ack the outcome of the segment decides."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from smq_broker.kafka.executor import LoopCalls
from smq_broker.kafka.partitions.append import BatchAppend
from smq_broker.kafka.partitions.tail_reader import READ_RECENTLY_SECONDS, TailReader, encode_entries
from smq_broker.kafka.records.batch_header import parse_batch
from smq_broker.kafka.records.decoding import decode_records
from smq_broker.rows.payloads import Payload
from smq_broker.rows.small_batches import SmallBatch
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import Overloaded, SegmentSealed, SequenceGap
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Replica
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.model.keyspace import Partitioner
from smq_core.replica.log_entries import IncomingBatch
from smq_storage.object_store.store import open_store
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic
from support.waiting import HANG_GUARD

FOLLOWER = Replica("b2", "i2", "nowhere:1")


@pytest.fixture
def hosted() -> HostedSegment:
    """A primary without threads, so its follower never answers: nothing is durable until a test says so."""
    broker = BrokerParts("b1", open_store("memory://"), spawn=lambda *_: threading.Thread())
    topic = make_topic(partitioner=Partitioner.KAFKA, partitions=4)
    segment = make_segment(topic, broker.replica, FOLLOWER)
    broker.opener.open(topic, segment)
    found = broker.hosted(topic, segment)
    with found as machine:
        machine.follower_connected(FOLLOWER.incarnation, 0, 1 << 20)
    return found


def batch(sequence: int, values: list[bytes], partition: int = 1) -> IncomingBatch:
    block = SmallBatch([partition] * len(values), [1_000_000] * len(values), [], values)
    return IncomingBatch(
        id=KafkaBatchId(7, 0, sequence),
        rows=len(values),
        nbytes=100,
        partition_min=partition,
        partition_max=partition,
        payload=Payload(block),
        partition_rows=((partition, len(values)),),
    )


def make_durable(hosted: HostedSegment) -> None:
    with hosted as machine:
        machine.follower_acked(FOLLOWER.incarnation, machine.end)


def seal_at(hosted: HostedSegment, end: int) -> None:
    with hosted as machine:
        machine.fence()
    with hosted as machine:
        machine.sealed(SealOutcome(segment=hosted.name, end=end))


class Appends:
    """Of one client, with a deadline that passes at once or never."""

    def __init__(self, hosted: HostedSegment) -> None:
        self.hosted = hosted
        self.calls = LoopCalls(asyncio.get_running_loop())

    async def start(self, batch: IncomingBatch) -> BatchAppend:
        append = BatchAppend(self.hosted, self.calls, asyncio.get_running_loop())
        await append.append(batch, time.monotonic())
        return append


async def test_a_batch_is_acked_with_its_offset_once_it_is_durable(hosted: HostedSegment) -> None:
    appends = Appends(hosted)
    first, second = await appends.start(batch(0, [b"a", b"b"])), await appends.start(batch(2, [b"c"]))
    with pytest.raises(Overloaded):
        await (await appends.start(batch(3, [b"d"]))).offset(time.monotonic())
    make_durable(hosted)
    assert [await first.offset(time.monotonic() + HANG_GUARD), await second.offset(time.monotonic() + HANG_GUARD)] == [
        0,
        2,
    ]
    assert not hosted.streams


async def test_a_repeat_gets_the_offset_of_the_batch(hosted: HostedSegment) -> None:
    appends = Appends(hosted)
    await appends.start(batch(0, [b"a"]))
    repeat = await appends.start(batch(0, [b"a"]))
    make_durable(hosted)
    assert await repeat.offset(time.monotonic() + HANG_GUARD) == 0 and hosted.machine.end == 1
    with pytest.raises(SequenceGap):
        await appends.start(batch(5, [b"x"]))


async def test_the_outcome_of_a_sealed_segment_decides(hosted: HostedSegment) -> None:
    appends = Appends(hosted)
    kept, lost = await appends.start(batch(0, [b"a", b"b"])), await appends.start(batch(2, [b"c"]))
    repeat = await appends.start(batch(0, [b"a", b"b"]))
    seal_at(hosted, 2)
    assert await kept.offset(time.monotonic() + HANG_GUARD) == 0
    for append in (lost, repeat):  # the repeat's client sends it to the successor, which knows it
        with pytest.raises(SegmentSealed):
            await append.offset(time.monotonic() + HANG_GUARD)
    with pytest.raises(SegmentSealed):
        await appends.start(batch(3, [b"d"]))


async def test_an_append_whose_client_has_left_is_forgotten_with_its_ack(hosted: HostedSegment) -> None:
    await Appends(hosted).start(batch(0, [b"a"]))
    assert hosted.streams
    make_durable(hosted)
    assert not hosted.streams


async def test_what_is_read_is_durable_and_has_the_records_of_the_partition(hosted: HostedSegment) -> None:
    appends, reader = Appends(hosted), TailReader()
    await appends.start(batch(0, [b"a", b"b"]))
    await appends.start(batch(0, [b"other"], partition=2))
    await appends.start(batch(2, [b"c"]))
    make_durable(hosted)
    await appends.start(batch(3, [b"not durable"]))
    found = reader.read(hosted, 1, 1, 1 << 20)
    assert found is not None and (found.state.high_watermark, found.state.end) == (3, 4)
    encoded = encode_entries(hosted, 1, 1, found.entries)
    header = parse_batch(memoryview(encoded))
    assert (header.base_offset, header.records) == (1, 2)
    assert decode_records(memoryview(encoded), header, 1 << 20).values.to_pylist() == [b"b", b"c"]
    at_end = reader.read(hosted, 1, 3, 1 << 20)
    assert at_end is not None and not at_end.entries and not at_end.is_in_filer


async def test_recent_messages_stay_in_memory_while_a_segment_is_read(hosted: HostedSegment) -> None:
    now = 0.0
    reader = TailReader(lambda: now)
    reader.read(hosted, 1, 0, 1)
    assert hosted.machine.recent.limit_bytes > 0
    now = 2 * READ_RECENTLY_SECONDS
    reader._forget_unread(now)
    assert hosted.machine.recent.limit_bytes == 0
