"""Commits to a group while its file is being written, and members while the leader is paused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from smq_core.errors import StaleGeneration, StoreUnavailable, Unavailable
from smq_core.model.group_start import GroupStart
from smq_proto.v1 import groups_pb2
from smq_storage.catalog import group_positions
from smq_storage.catalog.group_positions import CommittedPositions
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.sim.engine.virtual_threads import VirtualEvent
from support.virtual_time import pause_process, virtual_time
from support.waiting import wait_until

TOPIC, GROUP = "default/t", "g"
# Virtual seconds in which every request has to be answered; less than a member may be silent.
GRACE = 5.0


@dataclass
class DelayedWrites:
    """Holds the PUTs of a group's file. Each PUT waits for the event at its position, and then does what it says."""

    gates: list[VirtualEvent] = field(default_factory=list)
    outcomes: list[Exception | None] = field(default_factory=list)
    started: int = 0
    written: list[Mapping[str, int]] = field(default_factory=list)

    def hold(self, outcome: Exception | None = None) -> VirtualEvent:
        """Holds the next PUT that is not held yet, which then succeeds, or raises ``outcome``."""
        self.gates.append(VirtualEvent())
        self.outcomes.append(outcome)
        return self.gates[-1]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        put = group_positions.put_positions

        def delayed_put(store: Any, topic: str, uid: str, group: str, mine: CommittedPositions, *rest: Any) -> str:
            number = self.started
            self.started += 1
            if number < len(self.gates):
                self.gates[number].wait()
                outcome = self.outcomes[number]
                if outcome is not None:
                    raise outcome
            self.written.append(mine.positions)
            return put(store, topic, uid, group, mine, *rest)

        monkeypatch.setattr(group_positions, "put_positions", delayed_put)


@asynccontextmanager
async def leader_with_group(segments: int = 1):
    """A running leader, and a group with one member ``a`` that owns all segments: (leader, generation, segments)."""
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for number in range(3):
        fleet.add(f"b{number}")
    platform.add_topic(TOPIC, min_segments=segments)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].layout is not None)
        _, assignment = await leader.groups.join(TOPIC, GROUP, "a", GroupStart.EARLIEST, 0)
        assert len(assignment.positions) == segments
        yield leader, assignment.generation, sorted(assignment.positions)


def commit(leader: LeaderInMemory, generation: int, positions: Mapping[str, int]) -> asyncio.Task[None]:
    served = leader.groups.loaded(TOPIC, GROUP)
    assert served is not None
    return asyncio.ensure_future(leader.groups.commit(TOPIC, GROUP, "a", generation, positions, epoch=served.epoch))


@virtual_time
async def test_a_commit_that_repeats_one_that_is_being_written_is_answered():
    with pytest.MonkeyPatch.context() as patch:
        async with leader_with_group() as (leader, generation, (segment,)):
            writes = DelayedWrites()
            writes.install(patch)
            gate = writes.hold()
            first = commit(leader, generation, {segment: 0})
            await wait_until(lambda: writes.started == 1)
            repeated = commit(leader, generation, {segment: 0})
            await asyncio.sleep(1)
            assert not repeated.done(), "it is not durable yet"
            gate.set()
            await asyncio.wait_for(asyncio.gather(first, repeated), GRACE)
            assert writes.started == 1, "there is nothing more to write"


@virtual_time
async def test_a_commit_that_repeats_one_whose_write_fails_waits_for_the_next_write():
    with pytest.MonkeyPatch.context() as patch:
        async with leader_with_group() as (leader, generation, (segment,)):
            writes = DelayedWrites()
            writes.install(patch)
            gate, second = writes.hold(StoreUnavailable("broken by the test")), writes.hold()
            first = commit(leader, generation, {segment: 0})
            await wait_until(lambda: writes.started == 1)
            repeated = commit(leader, generation, {segment: 0})
            gate.set()
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(first, GRACE)
            await wait_until(lambda: writes.started == 2)
            assert not repeated.done(), "it is not durable yet"
            second.set()
            await asyncio.wait_for(repeated, GRACE)
            assert writes.written == [{segment: 0}]


@virtual_time
async def test_a_repeated_commit_with_a_new_position_waits_for_the_write_of_that():
    with pytest.MonkeyPatch.context() as patch:
        async with leader_with_group(2) as (leader, generation, (one, other)):
            writes = DelayedWrites()
            writes.install(patch)
            gates = [writes.hold(), writes.hold()]
            first = commit(leader, generation, {one: 0})
            await wait_until(lambda: writes.started == 1)
            repeated, more = commit(leader, generation, {one: 0}), commit(leader, generation, {one: 0, other: 0})
            gates[0].set()
            await asyncio.wait_for(first, GRACE)
            await wait_until(lambda: writes.started == 2)
            assert not more.done(), "its second position is not durable yet"
            gates[1].set()
            await asyncio.wait_for(asyncio.gather(repeated, more), GRACE)
            assert writes.written[-1] == {one: 0, other: 0}


@virtual_time
async def test_a_commit_that_waits_for_a_write_is_answered_when_another_leader_took_the_group():
    with pytest.MonkeyPatch.context() as patch:
        async with leader_with_group() as (leader, generation, (segment,)):
            writes = DelayedWrites()
            writes.install(patch)
            gate = writes.hold()
            first = commit(leader, generation, {segment: 0})
            await wait_until(lambda: writes.started == 1)
            repeated = commit(leader, generation, {segment: 0})
            await asyncio.sleep(0.001)  # so that it waits for the PUT too
            # Its generation says that another leader served the group, so this one loads it anew, and the PUT that is
            # under way finds another file.
            later = generation + 5000
            joined = await leader.groups.join(TOPIC, GROUP, "b", GroupStart.EARLIEST, later)
            gate.set()
            for waiting in (first, repeated):
                with pytest.raises(StaleGeneration):
                    await asyncio.wait_for(waiting, GRACE)
            served = leader.groups.loaded(TOPIC, GROUP)
            assert served is not None and "b" in served.members, "the group that was loaded anew stays"
            assert joined[1].positions


@virtual_time
async def test_a_commit_that_waits_for_a_write_is_answered_when_the_leader_stops():
    with pytest.MonkeyPatch.context() as patch:
        async with leader_with_group() as (leader, generation, (segment,)):
            writes = DelayedWrites()
            writes.install(patch)
            writes.hold()
            waiting = [commit(leader, generation, {segment: 0})]
            await wait_until(lambda: writes.started == 1)
            waiting.append(commit(leader, generation, {segment: 0}))
            await asyncio.sleep(0)
            await leader.loop.stop()
            for each in waiting:
                with pytest.raises(Unavailable, match="commit again"):
                    await asyncio.wait_for(each, GRACE)


@virtual_time
async def test_a_change_waits_for_the_commit_that_is_being_written():
    with pytest.MonkeyPatch.context() as patch:
        async with leader_with_group() as (leader, generation, (segment,)):
            writes = DelayedWrites()
            writes.install(patch)
            gate = writes.hold()
            committed = commit(leader, generation, {segment: 0})
            await wait_until(lambda: writes.started == 1)
            await leader.groups.leave(TOPIC, GROUP, "a")
            request = groups_pb2.SetPositionsRequest(topic="t", group=GROUP, positions={})
            changed = asyncio.ensure_future(leader.call("SetPositions", request))
            await asyncio.sleep(1)
            assert not changed.done(), "the commit is in the filer before it, or never"
            gate.set()
            await asyncio.wait_for(asyncio.gather(committed, changed), GRACE)
            assert writes.written[-1] == {} and leader.groups.loaded(TOPIC, GROUP) is None


@pytest.mark.parametrize("first", ["the coordinator", "a heartbeat"])
@virtual_time
async def test_no_member_expires_because_the_leader_was_paused(first: str):
    async with leader_with_group(2) as (leader, generation, _):
        await leader.groups.join(TOPIC, GROUP, "b", GroupStart.EARLIEST, 0)
        _, before = await leader.groups.join(TOPIC, GROUP, "a", GroupStart.EARLIEST, generation)
        await leader.groups.join(
            TOPIC, GROUP, "a", GroupStart.EARLIEST, before.generation
        )  # a has released its second segment
        _, of_b = await leader.groups.join(TOPIC, GROUP, "b", GroupStart.EARLIEST, before.generation)
        await pause_process(120)
        if first == "the coordinator":
            await asyncio.sleep(1)
        _, after = await leader.groups.join(TOPIC, GROUP, "a", GroupStart.EARLIEST, before.generation)
        served = leader.groups.loaded(TOPIC, GROUP)
        assert served is not None and set(served.members) == {"a", "b"}
        assert after.generation == of_b.generation, "nothing was assigned anew"
        assert set(served.assignment.values()) == {"a", "b"}


@virtual_time
async def test_a_member_that_sends_nothing_after_a_pause_of_the_leader_expires():
    async with leader_with_group() as (leader, _, _):
        await pause_process(120)
        served = leader.groups.loaded(TOPIC, GROUP)
        assert served is not None
        await asyncio.sleep(4)
        assert "a" in served.members
        await asyncio.sleep(3)
        assert not served.members


@virtual_time
async def test_retention_sees_the_positions_that_another_leader_has_set_back():
    async with leader_with_group() as (leader, generation, [segment]):
        await commit(leader, generation, {segment: 0})
        managed = leader.topics[TOPIC]
        topic = managed.topic
        assert topic is not None
        served = leader.groups.loaded(TOPIC, GROUP)
        assert served is not None
        served.reader.advance(segment, 7)
        _, etag = group_positions.read_positions(leader.store, topic.name, topic.uid, GROUP)
        newer = CommittedPositions(
            generation=generation + 1000,
            positions={segment: 3},
            writer="another leader",
            last_active_at=1,
            epoch="newer",
        )
        group_positions.put_positions(leader.store, topic.name, topic.uid, GROUP, newer, etag)

        (state,) = await leader.groups.states(managed, topic)

        assert (dict(state.positions), state.last_active_at) == ({segment: 3}, None), "its members call another leader"
        assert leader.groups.loaded(TOPIC, GROUP) is None
