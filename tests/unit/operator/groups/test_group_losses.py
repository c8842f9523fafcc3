"""What a group has read and what all replicas took with them: the positions show the loss, and members learn of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from smq_core.errors import StaleGeneration
from smq_core.model.decision import DecisionAction
from smq_core.model.entities import RemovedSegment
from smq_core.model.group_start import GroupStart
from smq_core.model.loss import Loss
from smq_operator.groups.group_losses import GroupLosses
from smq_proto.v1 import groups_pb2
from smq_storage.catalog import paths, sealed_index
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC, GROUP = "default/t", "g"


class WholeCluster:
    """A topic of one segment, whose messages are in the brokers' memory. Everything can be killed at once."""

    def __init__(self) -> None:
        self.store = open_store("memory://")
        self.fleet, self.platform = FakeFleet(self.store), FakePlatform()
        self.platform.add_topic(TOPIC)
        self.uid = self.segment = ""
        self.start_brokers()

    def start_brokers(self) -> None:
        for number in range(3):
            self.fleet.add(f"b{number}")

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.platform, self.fleet, self.store)

    def kill_brokers(self) -> None:
        for broker in self.fleet.brokers.values():
            broker.living = False
            self.platform.terminated[broker.replica.incarnation] = "the node is gone"
        self.start_brokers()

    async def write(self, leader: LeaderInMemory, rows: int) -> None:
        await wait_until(lambda: leader.topics.get(TOPIC) is not None and leader.topics[TOPIC].is_stable)
        managed = leader.topics[TOPIC]
        assert managed.topic is not None and managed.layout is not None
        (segment,) = managed.layout.segments
        self.uid, self.segment = managed.topic.uid, segment.name
        self.fleet.write(self.uid, segment, rows)

    def lost(self) -> Loss | None:
        """What the index says of the segment."""
        return next((e.lost for e in sealed_index.read(self.store, TOPIC, self.uid) if e.name == self.segment), None)

    async def wait_lost(self, leader: LeaderInMemory, lost: Loss) -> None:
        """Waits until the index and the leader agree on this loss."""
        await wait_until(lambda: self.lost() == lost, what=f"{lost} in the index")
        await wait_until(
            lambda: (
                TOPIC in leader.topics
                and self.segment in leader.topics[TOPIC].index.sealed
                and leader.topics[TOPIC].index.sealed[self.segment].lost == lost
            ),
            what=f"{lost} at the leader",
        )


async def join(leader: LeaderInMemory, member: str, group: str = GROUP, start: GroupStart = GroupStart.EARLIEST) -> int:
    _, assignment = await leader.groups.join(TOPIC, group, member, start, 0)
    return assignment.generation


async def commit(
    leader: LeaderInMemory, member: str, positions: Mapping[str, int], losses: Mapping[str, int] | None = None
) -> None:
    _, joined = await leader.groups.join(TOPIC, GROUP, member, GroupStart.EARLIEST, 0)
    await leader.groups.commit(TOPIC, GROUP, member, joined.generation, positions, losses or {}, joined.epoch)


async def losses(leader: LeaderInMemory, group: str = GROUP) -> list[tuple[int, int, bool]]:
    """What a member of the group is told."""
    reply: Any = await leader.call("GetPositions", groups_pb2.GetPositionsRequest(topic="t", group=group))
    return [(it.loss.start, it.loss.stop, it.loss.at_least) for it in reply.lost_with_replicas]


@asynccontextmanager
async def everything_killed(committed: int) -> AsyncIterator[tuple[WholeCluster, LeaderInMemory]]:
    """10 messages were acked and some committed by the group. Then the leader and all brokers were killed."""
    cluster = WholeCluster()
    first = cluster.leader()
    async with running_leader(first):
        await cluster.write(first, 10)
        await join(first, "a")
        if committed:
            await commit(first, "a", {cluster.segment: committed})
    cluster.kill_brokers()
    second = cluster.leader()
    async with running_leader(second):
        yield cluster, second


@virtual_time
async def test_after_the_loss_of_everything_positions_of_groups_say_how_much_is_lost() -> None:
    async with everything_killed(committed=7) as (cluster, leader):
        await cluster.wait_lost(leader, Loss(0, 7, at_least=True))
        condition = leader.condition(TOPIC, "DataLoss")
        assert condition.status == "True" and f"{cluster.segment}: offsets 0 to at least 7" in condition.message
        await join(leader, "b")
        assert await losses(leader) == [(0, 7, True)], "a member that comes back is told"


@virtual_time
async def test_without_any_lower_bound_the_loss_is_possible() -> None:
    async with everything_killed(committed=0) as (cluster, leader):
        await cluster.wait_lost(leader, Loss(0, 0, at_least=True))
        condition = leader.condition(TOPIC, "DataLoss")
        assert condition.status == "Unknown" and f"{cluster.segment}: possibly offsets from 0 on" in condition.message
        await join(leader, "b")
        assert await losses(leader) == [(0, 0, True)]


@virtual_time
async def test_a_loss_is_reported_until_a_member_has_confirmed_it() -> None:
    async with everything_killed(committed=7) as (cluster, leader):
        await cluster.wait_lost(leader, Loss(0, 7, at_least=True))
        await join(leader, "b")
        await commit(leader, "b", {})
        assert await losses(leader) == [(0, 7, True)], "a commit alone does not say that its program knows"
        await commit(leader, "b", {}, {cluster.segment: 7})
        assert await losses(leader) == []
        await leader.loop.stop()
        third = cluster.leader()
        async with running_leader(third):
            await cluster.wait_lost(third, Loss(0, 7, at_least=True))
            await join(third, "c")
            assert await losses(third) == [], "it is durable"
            with suppress(StaleGeneration):  # the segment has ended, so the position itself is refused
                await commit(third, "c", {cluster.segment: 9})
            await cluster.wait_lost(third, Loss(0, 9, at_least=True))
            assert await losses(third) == [(7, 9, True)], "what is known now beyond that"
            reasons = [d.reason for d in third.decisions.recent if d.action is DecisionAction.RECORD_LOSS]
            assert len(reasons) == 1 and f"group {GROUP} has read messages beyond the end" in reasons[0]


@virtual_time
async def test_groups_that_start_after_the_loss() -> None:
    async with everything_killed(committed=7) as (cluster, leader):
        await cluster.wait_lost(leader, Loss(0, 7, at_least=True))
        await join(leader, "x", "later", GroupStart.LATEST)
        assert await losses(leader, "later") == [], "it begins after the loss"
        await join(leader, "y", "all", GroupStart.EARLIEST)
        assert await losses(leader, "all") == [(0, 7, True)]


@virtual_time
async def test_a_position_that_an_earlier_leader_could_not_record_is_recorded_by_the_next() -> None:
    async with everything_killed(committed=7) as (cluster, leader):
        await cluster.wait_lost(leader, Loss(0, 7, at_least=True))
        await leader.loop.stop()
        (entry,) = sealed_index.read(cluster.store, TOPIC, cluster.uid)
        page = paths.index_page(TOPIC, cluster.uid, 0)
        text = cluster.store.get(page)
        assert text is not None
        cluster.store.put(page, bytes(text[0]).replace(b'"stop":7', b'"stop":3'))
        assert entry.lost is not None and cluster.lost() == Loss(0, 3, at_least=True)
        third = cluster.leader()
        async with running_leader(third):
            await cluster.wait_lost(third, Loss(0, 7, at_least=True))


@virtual_time
async def test_a_stranger_s_commit_shows_nothing() -> None:
    async with everything_killed(committed=7) as (cluster, leader):
        await cluster.wait_lost(leader, Loss(0, 7, at_least=True))
        generation = await join(leader, "b")
        with pytest.raises(StaleGeneration):
            served = leader.groups.loaded(TOPIC, GROUP)
            assert served is not None
            await leader.groups.commit(TOPIC, GROUP, "stranger", generation, {cluster.segment: 9}, epoch=served.epoch)
        await wait_until(lambda: leader.tasks.idle)
        assert cluster.lost() == Loss(0, 7, at_least=True)


@virtual_time
async def test_a_group_whose_positions_cannot_be_read_is_listed_as_unreadable() -> None:
    cluster = WholeCluster()
    leader = cluster.leader()
    async with running_leader(leader):
        await cluster.write(leader, 1)
        cluster.store.put(paths.group(TOPIC, cluster.uid, "damaged"), b"{")
        await join(leader, "a")
        reply: Any = await leader.call("ListGroups", groups_pb2.ListGroupsRequest(topic="t"))
        assert [(g.name, g.unreadable) for g in reply.groups] == [("damaged", True), (GROUP, False)]


@virtual_time
async def test_what_a_group_has_read_of_a_segment_that_was_removed_is_not_lost() -> None:
    """It went on reading while the files were still there."""
    removed = RemovedSegment(name="t-0-16-0", number=0, end=9, removed_at=5, unread={GROUP: 3})
    positions = {removed.name: 3}

    async def ready_topic(topic: str) -> Any:
        return SimpleNamespace(index=SimpleNamespace(removed_segments={removed.name: removed}))

    served = SimpleNamespace(committed_at=6, group=SimpleNamespace(positions=positions))
    groups: Any = SimpleNamespace(ready_topic=ready_topic, loaded_with_dag=lambda *_: served)
    store: Any = None
    for offset, lost in ((3, [Loss(3, 9)]), (7, [Loss(7, 9)]), (9, [])):
        positions[removed.name] = offset
        found = await GroupLosses(groups, store).by_retention("t", GROUP)
        assert found == [(removed.name, it, True) for it in lost]
