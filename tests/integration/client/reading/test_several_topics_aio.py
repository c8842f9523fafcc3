"""The asyncio consumer of several topics, on a real cluster."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import smq
from smq.aio import AsyncClient, AsyncTopicsConsumer
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration


async def create(cluster: LocalCluster, client: AsyncClient, names: list[str], count: int) -> None:
    """Topics with the messages ``name 0``, ``name 1``, ..."""
    for name in names:
        cluster.create(name)
        await send(client, name, range(count))


async def send(client: AsyncClient, topic: str, numbers: range) -> None:
    async with client.producer(topic) as producer:
        await (await producer.send_many([b"%s %d" % (topic.encode(), number) for number in numbers]))


async def read(consumer: AsyncTopicsConsumer, count: int) -> Counter[tuple[str, bytes]]:
    """``count`` messages, by their topics."""
    found: Counter[tuple[str, bytes]] = Counter()
    async with asyncio.timeout(HANG_GUARD):
        async for batch in consumer:
            found.update((batch.topic, value) for value in batch.table.column("value").to_pylist())
            if found.total() >= count:
                break
    return found


def sent(topic: str, numbers: range) -> Counter[tuple[str, bytes]]:
    return Counter((f"default/{topic}", b"%s %d" % (topic.encode(), number)) for number in numbers)


async def test_messages_of_all_topics_come_once_each(cluster: LocalCluster, topic: str) -> None:
    one, two = names = [f"{topic}-a", f"{topic}-b"]
    async with smq.aio.connect(cluster.address) as client:
        await create(cluster, client, names, 20)
        async with client.topics_consumer(names) as consumer:
            assert await read(consumer, 40) == sent(one, range(20)) + sent(two, range(20))
            assert consumer.topics == {f"default/{one}", f"default/{two}"}
            positions = consumer.positions
            assert positions.keys() == consumer.topics
            assert consumer.filer_error is None
        await send(client, two, range(20, 25))
        async with client.topics_consumer(names, start=positions) as again:
            assert await read(again, 5) == sent(two, range(20, 25))
            assert await again.poll(0) is None


async def test_one_topic_goes_back_and_the_other_does_not(cluster: LocalCluster, topic: str) -> None:
    one, two = names = [f"{topic}-a", f"{topic}-b"]
    async with smq.aio.connect(cluster.address) as client:
        await create(cluster, client, names, 20)
        async with client.topics_consumer(names) as consumer:
            await read(consumer, 40)
            (segment,) = consumer.positions[f"default/{one}"]
            for late in (one, two):
                # The thread of a poll that was cancelled polls on, so it has this message, or will have it.
                polling = asyncio.create_task(consumer.poll())
                await asyncio.sleep(0)
                polling.cancel()
                await asyncio.wait([polling])
                assert polling.cancelled()
                await send(client, late, range(20, 21))
                await consumer[f"default/{one}"].seek({segment: 15})
                expected = sent(one, range(15, 21)) + (sent(two, range(20, 21)) if late == two else Counter())
                assert await read(consumer, expected.total()) == expected
                assert await consumer.poll(0) is None


async def test_a_group_goes_on_where_it_committed_and_its_callbacks_run_on_the_loop(
    cluster: LocalCluster, topic: str
) -> None:
    names = [f"{topic}-a", f"{topic}-b"]
    loops: list[asyncio.AbstractEventLoop] = []

    async def on_assigned(segments: frozenset[str]) -> None:
        loops.append(asyncio.get_running_loop())

    async with smq.aio.connect(cluster.address) as client:
        await create(cluster, client, names, 10)
        async with client.topics_consumer(names, group="report", on_assigned=on_assigned) as consumer:
            await read(consumer, 20)
            assert (await consumer.commit()).keys() == {f"default/{name}" for name in names}
        assert loops == [asyncio.get_running_loop()] * 2, "once for each topic"
        for name in names:
            await send(client, name, range(10, 13))
        async with client.topics_consumer(names, group="report") as consumer:
            expected = sent(names[0], range(10, 13)) + sent(names[1], range(10, 13))
            assert await read(consumer, 6) == expected


async def test_a_cancelled_poll_loses_nothing(cluster: LocalCluster, topic: str) -> None:
    names = [f"{topic}-a", f"{topic}-b"]
    found: list[bytes] = []
    async with asyncio.timeout(HANG_GUARD), smq.aio.connect(cluster.address) as client:
        for name in names:
            cluster.create(name)
        async with client.topics_consumer(names) as consumer:
            for number in range(10):
                polling = asyncio.create_task(consumer.poll())
                await asyncio.sleep(0)
                await send(client, names[number % 2], range(number, number + 1))
                polling.cancel()
                await asyncio.wait([polling])
                batch = await consumer.poll(HANG_GUARD) if polling.cancelled() else polling.result()
                assert batch is not None
                found += batch.table.column("value").to_pylist()
    assert found == [b"%s %d" % (names[number % 2].encode(), number) for number in range(10)]


async def test_a_deleted_topic_is_an_error(cluster: LocalCluster, topic: str) -> None:
    names = [f"{topic}-a", f"{topic}-b"]
    async with smq.aio.connect(cluster.address) as client:
        for name in names:
            cluster.create(name)
        async with client.topics_consumer(names) as consumer:
            await client.admin().delete(names[0])
            with pytest.raises(smq.UnknownTopic, match=names[0]):
                await consumer.poll(HANG_GUARD)
        with pytest.raises(smq.UnknownTopic):
            await client.topics_consumer([names[1], "no-such-topic"])
