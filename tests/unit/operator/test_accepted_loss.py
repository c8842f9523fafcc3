"""A loss that a person accepted is carried out, and told with its offsets, by whoever leads then."""

from __future__ import annotations

import asyncio

from smq_core.leading import TopicLeader
from smq_core.sealing import SealFromFiler
from smq_proto.v1 import leader_pb2 as lpb
from smq_storage import index, layouts
from smq_storage.store import open_store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading, until

TOPIC = "default/t"


def test_an_accepted_loss_and_its_offsets_survive_the_leader():
    async def main() -> None:
        store = open_store("memory://")
        fleet, world = FakeFleet(store), FakeWorld(4)
        for number in range(4):
            fleet.add(f"b{number}")
        world.wish(TOPIC)
        first = LeaderInMemory(world, fleet, store)

        async def never(leader: TopicLeader, effect: SealFromFiler) -> None:
            await asyncio.Event().wait()

        first.effects._seal_from_filer = never  # type: ignore[method-assign]
        async with leading(first):
            await until(lambda: TOPIC in first.loop.topics and first.loop.topics[TOPIC].quiet, what="it is open")
            run = first.loop.topics[TOPIC]
            assert run.leader is not None and run.layout is not None and run.topic is not None
            uid, (segment,) = run.topic.uid, run.layout.segments
            await until(lambda: all((uid, segment.name) in fleet.brokers[r.incarnation].held for r in segment.replicas))
            fleet.write(uid, segment, 10)
            await until(lambda: run.leader and run.leader.watermarks.get(segment.name) == 10, what="it is reported")
            for replica in segment.replicas:
                fleet.brokers[replica.incarnation].answers = False
                known = first.registry.get(replica.incarnation)
                assert known is not None
                known.doubted = True
            await first.call("Plan", lpb.PlanRequest(topic="t", action="roll", segments=[segment.name]))
            await until(lambda: run.leader and run.leader.blocked, what="nobody answers and nobody is proved gone")
            await first.call("AcceptLoss", lpb.SegmentRequest(topic="t", segment=segment.name))
            written = layouts.read_layout(store, TOPIC, uid)
            assert written is not None and written[0].segment(segment.name).loss_accepted
            assert not index.read(store, TOPIC, uid)
        second = LeaderInMemory(world, fleet, store)
        async with leading(second):
            await until(lambda: index.read(store, TOPIC, uid), what="the next leader seals it")
            (entry,) = index.read(store, TOPIC, uid)
            assert (entry.name, entry.end) == (segment.name, 0)
            assert (entry.lost_from, entry.lost_to) == (0, 10), "what is lost is told, though this leader never heard"

    asyncio.run(main())
