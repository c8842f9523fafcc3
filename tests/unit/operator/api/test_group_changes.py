"""What administrators see of groups and change: lag without members, generations, positions that are set, deletions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from smq_core.errors import StaleGeneration
from smq_core.reading.consumer_group import MEMBER_TIMEOUT
from smq_operator.api import group_coordinator, group_lags
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from smq_storage.catalog import group_positions, paths
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC, GROUP = "default/t", "g"
EXPIRED = MEMBER_TIMEOUT / 1e6 + 1


class GroupBench:
    """A topic of one segment with 10 messages, which one leader after the other serves."""

    def __init__(self) -> None:
        self.store = open_store("memory://")
        self.fleet, self.platform = FakeFleet(self.store), FakePlatform()
        self.platform.add_topic(TOPIC)
        for number in range(3):
            self.fleet.add(f"b{number}")
        self.segment = self.uid = ""
        self.leader: LeaderInMemory

    @asynccontextmanager
    async def serving(self, seconds: float = EXPIRED) -> AsyncIterator[None]:
        """A new leader, which knows after so many seconds who is a member."""
        self.leader = LeaderInMemory(self.platform, self.fleet, self.store)
        async with running_leader(self.leader):
            await wait_until(lambda: TOPIC in self.leader.topics and self.leader.topics[TOPIC].is_stable)
            managed = self.leader.topics[TOPIC]
            assert managed.layout is not None and managed.topic is not None and managed.reconciler is not None
            (segment,) = managed.layout.segments
            if not self.segment:
                self.segment, self.uid = segment.name, managed.topic.uid
                self.fleet.write(self.uid, segment, 10)
            await wait_until(lambda: managed.reconciler.watermarks.get(self.segment) == 10)  # type: ignore[union-attr]
            await asyncio.sleep(seconds)
            yield

    async def join(self, member: str = "a", **fields: Any) -> lpb.GroupAssignment:
        joined = await self.leader.call(
            "JoinGroup", lpb.JoinGroupRequest(topic="t", group=GROUP, member=member, **fields)
        )
        assert isinstance(joined, lpb.GroupAssignment)
        return joined

    async def commit(self, generation: int, offset: int, member: str = "a") -> None:
        request = lpb.CommitPositionsRequest(
            topic="t", group=GROUP, member=member, generation=generation, positions={self.segment: offset}
        )
        await self.leader.call("CommitPositions", request)

    async def leave(self, member: str = "a") -> None:
        await self.leader.call("LeaveGroup", lpb.LeaveGroupRequest(topic="t", group=GROUP, member=member))

    async def read_to(self, offset: int) -> None:
        """A member that commits this offset, and leaves."""
        await self.commit((await self.join()).generation, offset)
        await self.leave()

    async def group(self) -> lpb.GroupList.Group:
        listed = await self.leader.call("ListGroups", pb.LocateRequest(topic="t"))
        assert isinstance(listed, lpb.GroupList)
        (found,) = listed.groups
        return found

    async def set(self, positions: dict[str, int], **fields: Any) -> lpb.SetPositionsReply:
        request = lpb.SetPositionsRequest(topic="t", group=GROUP, positions=positions, **fields)
        done = await self.leader.call("SetPositions", request)
        assert isinstance(done, lpb.SetPositionsReply)
        return done

    async def delete(self) -> None:
        await self.leader.call("DeleteGroup", lpb.PositionsRequest(topic="t", group=GROUP))

    def stored(self) -> dict[str, int] | None:
        found = group_positions.read_positions(self.store, TOPIC, self.uid, GROUP)
        return dict(found[0].positions) if found is not None else None


# ---- what is shown


@virtual_time
async def test_the_lag_of_a_group_is_shown_with_members_and_without():
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        group = await bench.group()
        assert group.lag == 10 and group.segments[0].member == "a"
        await bench.commit(joined.generation, 4)
        await bench.leave()
        group = await bench.group()
        assert (group.lag, list(group.members)) == (6, [])
        assert [(it.segment, it.position, it.end, it.member) for it in group.segments] == [(bench.segment, 4, 10, "")]
        assert group.lag_seconds >= EXPIRED - 1 and group.committed_at and group.last_active_at


@virtual_time
async def test_the_metrics_have_groups_that_no_member_has_called_this_leader_for():
    bench = GroupBench()
    async with bench.serving():
        await bench.read_to(4)
    async with bench.serving(seconds=2 * group_lags.SAMPLE_INTERVAL_SECONDS):
        assert bench.leader.groups.loaded(TOPIC, GROUP) is None
        (report,) = bench.leader.parts.group_lags.reports[TOPIC]
        assert (report.group.name, report.total.messages) == (GROUP, 6) and report.total.age > 0


@virtual_time
async def test_the_metrics_have_a_bounded_number_of_groups_of_a_topic():
    bench = GroupBench()
    async with bench.serving():
        for name in ("idle", "left", "read"):
            request = lpb.JoinGroupRequest(topic="t", group=name, member="a")
            await bench.leader.call("JoinGroup", request)
            await asyncio.sleep(1)
            if name != "read":
                await bench.leader.call("LeaveGroup", lpb.LeaveGroupRequest(topic="t", group=name, member="a"))
                await asyncio.sleep(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(group_lags, "MAX_REPORTED_GROUPS", 2)
            await asyncio.sleep(2 * group_lags.SAMPLE_INTERVAL_SECONDS)
        lags = bench.leader.parts.group_lags
        assert [it.group.name for it in lags.reports[TOPIC]] == ["left", "read"], "those that were active last"
        assert lags.counts == {TOPIC: 3}


@virtual_time
async def test_the_generation_that_is_shown_never_goes_back():
    bench = GroupBench()
    shown = []

    async def list_it() -> None:
        shown.append((await bench.group()).generation)

    async with bench.serving():
        for _ in range(3):
            await bench.join()
            await list_it()
            await bench.leave()
            await list_it()
        await bench.set({bench.segment: 2})
        await list_it()
        await bench.join()
        await list_it()
        await bench.leave()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(group_coordinator, "IDLE_FORGET_AFTER_US", 1)
            await wait_until(lambda: bench.leader.groups.loaded(TOPIC, GROUP) is None)
        await list_it()
    async with bench.serving():
        await list_it()
        await bench.join()
        await list_it()
    assert shown == sorted(shown) and shown[0] > 0, shown


# ---- positions that are set


@virtual_time
async def test_positions_are_set_and_the_next_member_begins_there():
    bench = GroupBench()
    async with bench.serving():
        await bench.read_to(8)
        done = await bench.set({bench.segment: 3})
        assert (dict(done.before), dict(done.positions)) == ({bench.segment: 8}, {bench.segment: 3})
        assert bench.stored() == {bench.segment: 3} and (await bench.group()).lag == 7
        assert dict((await bench.join("b")).positions) == {bench.segment: 3}


@virtual_time
async def test_nothing_is_set_or_deleted_while_members_read():
    bench = GroupBench()
    async with bench.serving():
        await bench.commit((await bench.join()).generation, 8)
        with pytest.raises(RpcAborted, match=r"has members that read now \(a\).* stop them first"):
            await bench.set({})
        with pytest.raises(RpcAborted, match="stop them first"):
            await bench.delete()
        assert bench.stored() == {bench.segment: 8}
        await asyncio.sleep(EXPIRED)
        await bench.set({})
        assert bench.stored() == {}, "a member that sends no heartbeats is none"


@virtual_time
async def test_a_new_leader_changes_no_group_whose_members_it_may_not_know_yet():
    bench = GroupBench()
    async with bench.serving():
        await bench.read_to(8)
    async with bench.serving(seconds=0):
        with pytest.raises(RpcAborted, match="does not know yet whether group g has members"):
            await bench.set({})
        await asyncio.sleep(EXPIRED)
        await bench.set({})
        assert bench.stored() == {}


@virtual_time
async def test_a_dry_run_checks_everything_and_changes_nothing():
    bench = GroupBench()
    async with bench.serving():
        await bench.read_to(8)
        done = await bench.set({bench.segment: 3}, dry_run=True)
        assert dict(done.before) == {bench.segment: 8} and dict(done.positions) == {bench.segment: 3}
        assert bench.stored() == {bench.segment: 8}
        with pytest.raises(RpcAborted, match="no segment t-0-16-77"):
            await bench.set({"t-0-16-77": 3}, dry_run=True)


@virtual_time
async def test_a_group_is_created_at_positions_only_on_request():
    bench = GroupBench()
    async with bench.serving():
        with pytest.raises(RpcAborted, match="default/t has no group g"):
            await bench.set({bench.segment: 5})
        await bench.set({bench.segment: 5}, create=True)
        assert dict((await bench.join()).positions) == {bench.segment: 5}


@virtual_time
async def test_a_member_from_before_cannot_commit_over_positions_that_were_set():
    bench = GroupBench()
    async with bench.serving():
        generation = (await bench.join()).generation
        await bench.leave()
        await bench.set({bench.segment: 3}, create=True)
        with pytest.raises((RpcAborted, StaleGeneration), match="join"):
            await bench.commit(generation, 9)
        assert bench.stored() == {bench.segment: 3}


# ---- groups that are deleted, groups that begin at positions


@virtual_time
async def test_a_deleted_group_is_gone_and_begins_anew():
    bench = GroupBench()
    async with bench.serving():
        await bench.read_to(8)
        await bench.delete()
        assert bench.stored() is None and not list(bench.store.list(paths.groups_folder(TOPIC, bench.uid)))
        with pytest.raises(RpcAborted, match="no group g"):
            await bench.delete()
        assert dict((await bench.join()).positions) == {bench.segment: 0}


@virtual_time
async def test_a_new_group_begins_at_the_positions_of_its_first_member():
    bench = GroupBench()
    async with bench.serving():
        with pytest.raises(RpcAborted, match="no segment t-0-16-77"):
            await bench.join(start="positions", start_positions={"t-0-16-77": 1})
        first = await bench.join(start="positions", start_positions={bench.segment: 6})
        assert dict(first.positions) == {bench.segment: 6}
        await bench.leave()
        again = await bench.join("b", start="positions", start_positions={bench.segment: 1})
        assert dict(again.positions) == {bench.segment: 6}, "it is no longer new"
