"""The present leader carries out an accepted loss and reports it with its offsets."""

from __future__ import annotations

import asyncio

from smq_core.model.chunk_info import SealOutcome
from smq_proto.v1 import admin_pb2
from smq_storage.catalog import layouts, sealed_index
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


@virtual_time
async def test_an_accepted_loss_and_its_offsets_survive_the_leader():
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform(4)
    for number in range(4):
        fleet.add(f"b{number}")
    platform.add_topic(TOPIC)
    first = LeaderInMemory(platform, fleet, store)

    async def never(*_: object) -> SealOutcome:
        await asyncio.Event().wait()
        raise AssertionError

    first.effects._sealing.seal_from_filer = never  # type: ignore[method-assign]
    async with running_leader(first):
        await wait_until(lambda: TOPIC in first.topics and first.topics[TOPIC].is_stable, what="it is open")
        managed = first.topics[TOPIC]
        assert managed.reconciler is not None and managed.layout is not None and managed.topic is not None
        uid, (segment,) = managed.topic.uid, managed.layout.segments
        await wait_until(
            lambda: all((uid, segment.name) in fleet.brokers[r.incarnation].held for r in segment.replicas)
        )
        fleet.write(uid, segment, 10)
        await wait_until(
            lambda: managed.reconciler and managed.reconciler.watermarks.get(segment.name) == 10,
            what="it is reported",
        )
        for replica in segment.replicas:
            fleet.brokers[replica.incarnation].answers = False
            known = first.registry.get(replica.incarnation)
            assert known is not None
            known.suspected = True
        await first.call(
            "ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[segment.name])
        )
        await wait_until(
            lambda: managed.reconciler and managed.reconciler.blocked,
            what="nobody answers and nobody is proved gone",
        )
        await first.call("AcceptLoss", admin_pb2.AcceptLossRequest(topic="t", segment=segment.name))
        written = layouts.read_layout(store, TOPIC, uid)
        assert written is not None and written[0].segment(segment.name).loss_accepted
        assert not sealed_index.read(store, TOPIC, uid)
    second = LeaderInMemory(platform, fleet, store)
    async with running_leader(second):
        await wait_until(lambda: sealed_index.read(store, TOPIC, uid), what="the next leader seals it")
        (entry,) = sealed_index.read(store, TOPIC, uid)
        assert (entry.name, entry.end) == (segment.name, 0)
        assert entry.lost is not None and (entry.lost.start, entry.lost.stop) == (0, 10), (
            "the loss is reported, though this leader got no report"
        )
