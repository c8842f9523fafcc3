"""What administrators see of groups and change: lag without members, generations, positions that are set, deletions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from smq_core.errors import StaleGeneration
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Durability, Replica
from smq_core.reading.consumer_group import MEMBER_TIMEOUT
from smq_operator.groups import group_coordinator, group_lags
from smq_operator.groups.segment_reach import STATUS_TIMEOUT_SECONDS, SegmentReach
from smq_proto.v1 import admin_pb2, groups_pb2
from smq_storage.catalog import group_positions, paths
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store.store import ObjectExists, open_store
from support.in_memory.brokers import FakeFleet, batch_of
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC, GROUP = "default/t", "g"
EXPIRED = MEMBER_TIMEOUT / 1e6 + 1


class GroupBench:
    """A topic of one segment with 10 messages, which one leader after the other serves."""

    def __init__(self, **spec: Any) -> None:
        self.store = open_store("memory://")
        self.fleet, self.platform = FakeFleet(self.store), FakePlatform()
        self.platform.add_topic(TOPIC, **spec)
        for number in range(3):
            self.fleet.add(f"b{number}")
        self.segment = self.uid = self.epoch = ""
        self.leader: LeaderInMemory

    @asynccontextmanager
    async def serving(self, seconds: float = EXPIRED) -> AsyncIterator[None]:
        """A new leader, which knows after ``seconds`` who is a member."""
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

    async def join(self, member: str = "a", **fields: Any) -> groups_pb2.GroupAssignment:
        joined = await self.leader.call(
            "JoinGroup", groups_pb2.JoinGroupRequest(topic="t", group=GROUP, member=member, **fields)
        )
        assert isinstance(joined, groups_pb2.GroupAssignment)
        self.epoch = joined.epoch
        return joined

    async def commit(self, generation: int, offset: int, member: str = "a", epoch: str | None = None) -> None:
        request = groups_pb2.CommitPositionsRequest(
            topic="t",
            group=GROUP,
            member=member,
            generation=generation,
            positions={self.segment: offset},
            epoch=self.epoch if epoch is None else epoch,
        )
        await self.leader.call("CommitPositions", request)

    async def leave(self, member: str = "a") -> None:
        await self.leader.call("LeaveGroup", groups_pb2.LeaveGroupRequest(topic="t", group=GROUP, member=member))

    async def read_to(self, offset: int) -> None:
        """A member that commits this offset, and leaves."""
        await self.commit((await self.join()).generation, offset)
        await self.leave()

    async def groups(self) -> list[groups_pb2.GroupList.Group]:
        listed = await self.leader.call("ListGroups", groups_pb2.ListGroupsRequest(topic="t"))
        assert isinstance(listed, groups_pb2.GroupList)
        return list(listed.groups)

    async def group(self) -> groups_pb2.GroupList.Group:
        (found,) = await self.groups()
        return found

    async def set(self, positions: dict[str, int], **fields: Any) -> groups_pb2.SetPositionsReply:
        request = groups_pb2.SetPositionsRequest(topic="t", group=GROUP, positions=positions, **fields)
        done = await self.leader.call("SetPositions", request)
        assert isinstance(done, groups_pb2.SetPositionsReply)
        return done

    async def delete(self) -> None:
        await self.leader.call("DeleteGroup", groups_pb2.DeleteGroupRequest(topic="t", group=GROUP))

    async def roll(self) -> None:
        request = admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[self.segment])
        await self.leader.call("ChangeSegments", request)
        await wait_until(lambda: self.segment in self.leader.topics[TOPIC].index.sealed)

    def stored(self) -> dict[str, int] | None:
        found, _ = group_positions.read_positions(self.store, TOPIC, self.uid, GROUP)
        return dict(found.positions) if not found.deleted else None


def put_chunk(bench: GroupBench, rows: int) -> None:
    """The primary wrote the segment's first chunk, and does not know it."""
    chain = ChunkChain(bench.store, TOPIC, bench.uid, bench.segment)
    batch = (batch_of(rows, 0), 1)
    chain.put(
        ChunkInfo(segment=bench.segment, first=0, rows=rows, writer="other", nonce="n0"), [batch], chunk_schema(())
    )


def reach_of(bench: GroupBench) -> SegmentReach:
    return SegmentReach(bench.fleet, bench.leader.parts.store)


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
            request = groups_pb2.JoinGroupRequest(topic="t", group=name, member="a")
            await bench.leader.call("JoinGroup", request)
            await asyncio.sleep(1)
            if name != "read":
                await bench.leader.call("LeaveGroup", groups_pb2.LeaveGroupRequest(topic="t", group=name, member="a"))
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


@virtual_time
async def test_two_leaders_never_give_out_the_same_generation() -> None:
    bench = GroupBench()
    async with bench.serving():
        first = (await bench.join()).generation
        await bench.join("b")
        await bench.leave()  # nobody commits, so the filer has none of the generations that follow
        last = (await bench.join("b")).generation
    async with bench.serving(seconds=0):
        assert first < last < (await bench.join("c")).generation


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


@pytest.mark.parametrize("change", ["reset", "delete"])
@virtual_time
async def test_a_member_that_was_away_cannot_commit_over_a_change(change: str) -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        await bench.commit(joined.generation, 8)
        await asyncio.sleep(EXPIRED)
        await (bench.set({bench.segment: 3}) if change == "reset" else bench.delete())
        # It goes on where it was, and learns the new generation before it commits what it has read.
        back = await bench.join(generation=joined.generation)
        assert back.epoch != joined.epoch, "so that it forgets its positions"
        with pytest.raises(RpcAborted, match="were set since a has read these messages"):
            await bench.commit(back.generation, 9, epoch=joined.epoch)
        assert bench.stored() == ({bench.segment: 3} if change == "reset" else {})
        await bench.commit(back.generation, 9)
        assert bench.stored() == {bench.segment: 9}, "what it has read since counts"


@virtual_time
async def test_the_epoch_stays_when_another_leader_serves_the_group() -> None:
    bench = GroupBench()
    async with bench.serving():
        before = await bench.join()
    async with bench.serving():
        assert (await bench.join()).epoch == before.epoch


# ---- positions that nobody can have


@virtual_time
async def test_a_commit_beyond_the_end_is_refused_and_changes_nothing() -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        with pytest.raises(RpcAborted, match="has no offset 11: it has messages up to 10, so 0 to 10 are possible"):
            await bench.commit(joined.generation, 11)
        await bench.commit(joined.generation, 10)
        with pytest.raises(RpcAborted, match="has no offset 12"):
            await bench.set({bench.segment: 12}, dry_run=True)
        await bench.leave()
        with pytest.raises(RpcAborted, match="has no offset 12"):
            await bench.set({bench.segment: 12})
        assert bench.stored() == {bench.segment: 10}


@virtual_time
async def test_a_commit_beyond_the_end_of_a_sealed_segment_shows_no_loss() -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        await bench.roll()
        with pytest.raises(RpcAborted, match="ends at 10"):
            await bench.commit(joined.generation, 11)
        with pytest.raises(RpcAborted, match="ends at 10"):
            await bench.commit(joined.generation + 1000, 11)
        await asyncio.sleep(5)
        assert bench.leader.topics[TOPIC].index.sealed[bench.segment].lost is None


@virtual_time
async def test_a_commit_of_what_no_report_has_shown_yet_is_accepted() -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        managed = bench.leader.topics[TOPIC]
        assert managed.layout is not None and managed.reconciler is not None
        bench.leader.reports_paused = True
        bench.fleet.write(bench.uid, managed.layout.segment(bench.segment), 5)
        assert managed.reconciler.watermarks[bench.segment] == 10
        with pytest.raises(RpcAborted, match="has no offset 16"):
            await bench.commit(joined.generation, 16)
        await bench.commit(joined.generation, 15)
        assert bench.stored() == {bench.segment: 15}


@pytest.mark.parametrize("unresponsive", ["primary", "all"])
@virtual_time
async def test_a_commit_is_checked_by_a_follower_and_accepted_if_nobody_can_say(unresponsive: str) -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        managed = bench.leader.topics[TOPIC]
        assert managed.layout is not None
        bench.leader.reports_paused = True
        segment = managed.layout.segment(bench.segment)
        bench.fleet.write(bench.uid, segment, 5)
        for replica in segment.replicas[: 1 if unresponsive == "primary" else None]:
            bench.fleet.brokers[replica.incarnation].answers = False
        if unresponsive == "primary":
            with pytest.raises(RpcAborted, match="has no offset 16"):
                await bench.commit(joined.generation, 16)
        await bench.commit(joined.generation, 15)
        assert bench.stored() == {bench.segment: 15}


@virtual_time
async def test_a_commit_of_a_stored_chunk_that_its_primary_does_not_know_of_is_accepted() -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        put_chunk(bench, 12)  # its reply is late, or was lost
        await bench.commit(joined.generation, 12)
        with pytest.raises(RpcAborted, match="has no offset 13: it has messages up to 12"):
            await bench.commit(joined.generation, 13)
        chain = ChunkChain(bench.store, TOPIC, bench.uid, bench.segment)
        chain.put_seal(ChunkInfo(segment=bench.segment, first=12, rows=0, writer="other", nonce="n1", sealed=True))
        await bench.commit(joined.generation, 12)
        assert bench.stored() == {bench.segment: 12}


@virtual_time
async def test_a_commit_is_accepted_if_the_chain_cannot_be_read() -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        bench.store.put(paths.chunk(TOPIC, bench.uid, bench.segment, 0), b"no chunk")
        await bench.commit(joined.generation, 12)
        assert bench.stored() == {bench.segment: 12}


@virtual_time
async def test_a_commit_is_accepted_while_a_replica_seals_the_segment() -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        managed = bench.leader.topics[TOPIC]
        assert managed.layout is not None and managed.reconciler is not None
        bench.leader.effects.dead = (TOPIC,)
        segment = replace(managed.layout.segment(bench.segment), successors=("t-0-16-1",))
        managed.reconciler.layout = replace(managed.layout, segments=(segment,))
        await bench.commit(joined.generation, 15)
        assert bench.stored() == {bench.segment: 15}


@virtual_time
async def test_an_unresponsive_primary_is_replaced_by_the_follower_with_the_least() -> None:
    """All acked messages are at each follower, and one may have more, which the other's seal does not have."""
    bench = GroupBench(replicas=3)
    async with bench.serving():
        managed = bench.leader.topics[TOPIC]
        assert managed.layout is not None
        bench.leader.reports_paused = True
        primary, *followers = managed.layout.segment(bench.segment).replicas
        assert len(followers) == 2
        bench.fleet.brokers[primary.incarnation].answers = False
        for ahead in followers:
            machine = bench.fleet.brokers[ahead.incarnation].held[bench.uid, bench.segment]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(machine), "end", property(lambda it, ahead=machine: 15 if it is ahead else 10))
                assert await reach_of(bench).poll(managed, managed.layout.segments) == {bench.segment: 10}


@virtual_time
async def test_nobody_has_read_a_segment_that_its_replicas_have_not_opened() -> None:
    """A position there would skip what the segment gets later."""
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        bench.leader.reports_paused = True
        for broker in bench.fleet.brokers.values():
            broker.held.clear()
        with pytest.raises(RpcAborted, match="has no offset 10000"):
            await bench.commit(joined.generation, 10_000)
        assert not bench.stored().get(bench.segment)


@virtual_time
async def test_all_unresponsive_brokers_are_polled_at_once() -> None:
    bench = GroupBench()
    async with bench.serving():
        managed = bench.leader.topics[TOPIC]
        assert managed.layout is not None
        (segment,) = managed.layout.segments
        for broker in bench.fleet.brokers.values():
            broker.answers = False
        unresponsive = [replace(segment, name=f"t-0-16-{number}") for number in range(16)]
        before = asyncio.get_running_loop().time()
        assert await reach_of(bench).poll(managed, unresponsive) == {}
        assert asyncio.get_running_loop().time() - before < 3 * STATUS_TIMEOUT_SECONDS


@virtual_time
async def test_followers_of_a_stored_segment_are_not_polled() -> None:
    bench = GroupBench()
    async with bench.serving():
        managed = bench.leader.topics[TOPIC]
        assert managed.layout is not None
        segment = replace(managed.layout.segments[0], durability=Durability.STORED)
        bench.fleet.brokers[segment.primary.incarnation].answers = False
        await asyncio.sleep(1)
        bench.leader.reports_paused = True
        polled: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            call = bench.fleet.call

            async def count(replica: Replica, *args: Any, **kwargs: Any) -> bytes:
                polled.append(replica.incarnation)
                return await call(replica, *args, **kwargs)

            patch.setattr(bench.fleet, "call", count)
            assert await reach_of(bench).poll(managed, [segment]) == {}
        assert segment.replicas[1].incarnation not in polled


@virtual_time
async def test_commits_share_the_questions_to_a_broker() -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        managed = bench.leader.topics[TOPIC]
        assert managed.layout is not None
        bench.leader.reports_paused = True
        bench.fleet.write(bench.uid, managed.layout.segment(bench.segment), 50)
        before = bench.fleet.calls
        await asyncio.gather(*(bench.commit(joined.generation, 11 + n) for n in range(49)))
        assert bench.fleet.calls - before <= 2


@virtual_time
async def test_a_new_group_at_the_latest_gets_no_message_from_before() -> None:
    bench = GroupBench()
    async with bench.serving():
        managed = bench.leader.topics[TOPIC]
        assert managed.layout is not None
        bench.leader.reports_paused = True
        bench.fleet.write(bench.uid, managed.layout.segment(bench.segment), 5)
        assert dict((await bench.join(start="LATEST")).positions) == {bench.segment: 15}


# ---- commits that a group waits for


@virtual_time
async def test_the_group_says_which_commit_its_successors_wait_for() -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        await bench.roll()
        assert not any(it.waits_for_commit for it in (await bench.group()).segments), "it is still being read"
        await bench.join(generation=joined.generation, ended={bench.segment: 10})
        group = await bench.group()
        assert [it.segment for it in group.segments if it.waits_for_commit] == [bench.segment]
        await bench.commit(joined.generation, 10)
        assert not any(it.waits_for_commit for it in (await bench.group()).segments)


# ---- groups that are deleted, groups that begin at positions


@virtual_time
async def test_a_deleted_group_is_gone_and_begins_anew():
    bench = GroupBench()
    async with bench.serving():
        await bench.read_to(8)
        await bench.delete()
        managed = bench.leader.topics[TOPIC]
        assert managed.topic is not None
        assert bench.stored() is None and not await bench.groups()
        assert not await bench.leader.groups.states(managed, managed.topic), "retention does not wait for it"
        with pytest.raises(RpcAborted, match="no group g"):
            await bench.delete()
        with pytest.raises(RpcAborted, match="no group g"):
            await bench.set({})
        assert dict((await bench.join()).positions) == {bench.segment: 0}


@virtual_time
async def test_a_late_put_of_a_groups_beginning_does_not_undo_its_deletion() -> None:
    bench = GroupBench()
    async with bench.serving():
        joined = await bench.join()
        path = paths.group(TOPIC, bench.uid, GROUP)
        beginning = bytes(bench.store.get(path).data)
        await bench.commit(joined.generation, 8)
        await bench.leave()
        await bench.delete()
        with pytest.raises(ObjectExists):
            bench.store.put_new(path, beginning)  # the filer applies a PUT whose time was up
        assert (await bench.join()).epoch != joined.epoch


@virtual_time
async def test_a_late_deletion_does_not_remove_a_group_that_has_begun_anew() -> None:
    bench = GroupBench()
    requests: list[str] = []
    async with bench.serving():
        await bench.read_to(8)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(bench.store), "delete", lambda store, path: requests.append(path))
            await bench.delete()
        await bench.commit((await bench.join()).generation, 5)
        for path in requests:
            bench.store.delete(path)  # the filer applies DELETEs whose answers were lost
        assert bench.stored() == {bench.segment: 5}


@virtual_time
async def test_a_member_of_a_group_that_was_deleted_twice_forgets_its_positions() -> None:
    bench = GroupBench()
    epochs = []
    async with bench.serving():
        for _ in range(3):
            epochs.append((await bench.join()).epoch)
            await bench.leave()
            await bench.delete()
    assert len(set(epochs)) == 3 and all(epochs)


@pytest.mark.parametrize("by", ["member", "administrator"])
@virtual_time
async def test_the_generation_of_a_deleted_group_continues_when_it_begins_anew(by: str) -> None:
    bench = GroupBench()
    async with bench.serving():
        before = await bench.join()
        await bench.leave()
        await bench.delete()
        if by == "administrator":
            done = await bench.set({bench.segment: 5}, create=True)
            assert not done.before
        after = await bench.join()
        assert after.generation > before.generation and after.epoch != before.epoch
        assert dict(after.positions) == {bench.segment: 5 if by == "administrator" else 0}


@virtual_time
async def test_a_new_group_begins_at_the_positions_of_its_first_member():
    bench = GroupBench()
    async with bench.serving():
        with pytest.raises(RpcAborted, match="no segment t-0-16-77"):
            await bench.join(start="POSITIONS", start_positions={"t-0-16-77": 1})
        first = await bench.join(start="POSITIONS", start_positions={bench.segment: 6})
        assert dict(first.positions) == {bench.segment: 6}
        await bench.leave()
        again = await bench.join("b", start="POSITIONS", start_positions={bench.segment: 1})
        assert dict(again.positions) == {bench.segment: 6}, "it is no longer new"
