"""The asyncio client against real processes."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import smq
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration


async def test_publish_and_consume_on_an_event_loop(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic)

    async with asyncio.timeout(HANG_GUARD):
        async with smq.aio.connect(cluster.address) as client:
            assert topic in [t.name.split("/")[1] for t in await client.admin().topics()]
            async with client.producer(topic) as producer:
                deliveries = [await producer.send(b"%d" % i) for i in range(1000)]
                receipts = await asyncio.gather(*(asyncio.ensure_future(_receipt(d)) for d in deliveries))
                assert sorted(r.offset for r in receipts) == list(range(1000))
                assert len(await (await producer.write(pa.table({"value": [b"x", b"y"]})))) == 2
            consumer = await client.consumer(topic)
            rows = 0
            async for batch in consumer:
                rows += len(batch)
                if rows == 1002:
                    break
            await consumer.close()


async def _receipt(delivery: smq.aio.AsyncDelivery[smq.Receipt]) -> smq.Receipt:
    return await delivery


async def test_a_cancelled_poll_loses_nothing(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic)

    found: list[bytes] = []
    async with asyncio.timeout(HANG_GUARD):
        async with (
            smq.aio.connect(cluster.address) as client,
            client.producer(topic) as producer,
            client.consumer(topic) as consumer,
        ):
            while len(found) < 20:
                polling = asyncio.create_task(consumer.poll())
                await asyncio.sleep(0)
                await (await producer.send(b"%d" % len(found)))
                polling.cancel()
                await asyncio.wait([polling])
                batch = await consumer.poll(HANG_GUARD) if polling.cancelled() else polling.result()
                assert batch is not None
                found += batch.table.column("value").to_pylist()
    assert found == [b"%d" % i for i in range(20)]


async def test_the_sync_errors_come_out(cluster: LocalCluster) -> None:
    async with smq.aio.connect(cluster.address) as client:
        with pytest.raises(smq.UnknownTopic):
            await client.producer("nowhere")
