"""A pause of the leader says nothing about brokers, whatever runs first after it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from smq_core.model.entities import Liveness
from smq_operator.brokers.liveness import LivenessProbes
from smq_operator.brokers.registry import SUSPECT_AFTER_US, BrokerRegistry
from smq_operator.reconcile.warm_up import WarmUp
from smq_operator.runtime.clock import PAUSE_DETECTED_AFTER_US, PauseAwareClock
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.object_store.store import open_store
from support import virtual_time as virtual
from support.in_memory.brokers import FakeBroker, FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import pause_process, virtual_time
from support.waiting import wait_until


@asynccontextmanager
async def leader_with_broker():
    store = open_store("memory://")
    fleet = FakeFleet(store)
    broker, leader = fleet.add("b0"), LeaderInMemory(FakePlatform(1), fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: leader.registry.get(broker.replica.incarnation))
        yield leader, broker


def liveness(leader: LeaderInMemory, broker: FakeBroker) -> Liveness:
    known = leader.registry.get(broker.replica.incarnation)
    assert known is not None
    return known.liveness(leader.parts.clock())


@pytest.mark.parametrize("first", ["the loop", "a report", "a query"])
@virtual_time
async def test_a_broker_keeps_its_timeout_over_a_pause_of_the_leader(first: str):
    async with leader_with_broker() as (leader, broker):
        await pause_process(60)
        if first == "the loop":
            leader.loop.reconcile()
        elif first == "a report":
            await leader.report_all()
        assert liveness(leader, broker) is Liveness.ALIVE
        await leader.report_all()
        known = leader.registry.get(broker.replica.incarnation)
        assert known is not None and known.report_timeout_us == SUSPECT_AFTER_US, "it was not suspected wrongly"
        broker.living = False
        await asyncio.sleep(2.4)
        assert liveness(leader, broker) is Liveness.ALIVE
        await asyncio.sleep(0.3)
        assert liveness(leader, broker) is Liveness.SUSPECT, "the pause is not added to a report that came after it"


@virtual_time
async def test_a_probe_that_timed_out_because_the_leader_was_paused_is_repeated():
    store = open_store("memory://")
    fleet, clock = FakeFleet(store), PauseAwareClock(virtual.now)
    broker, registry, suspected = fleet.add("b0"), BrokerRegistry(FakePlatform(1)), []
    probes = LivenessProbes(
        registry=registry,
        brokers=fleet,
        tasks=TaskRunner(),
        on_suspected=lambda: suspected.append(clock()),
        clock=clock,
    )
    clock.on_pause(probes.compensate_pause)
    registry.report(broker.report(), clock())
    broker.answers = False
    probes.report_unresponsive(broker.replica.incarnation, by="a peer")
    await asyncio.sleep(0.1)
    await pause_process(60)
    broker.answers = True  # as it had all the time, while the leader could not see it
    await asyncio.sleep(5)
    assert not suspected
    broker.answers = False
    probes.report_unresponsive(broker.replica.incarnation, by="a peer")
    await asyncio.sleep(1)
    assert suspected, "a probe without a pause counts"


def test_only_a_gap_of_more_than_a_second_is_a_pause():
    at, pauses = [0], []
    clock = PauseAwareClock(lambda: at[0])
    clock.on_pause(pauses.append)
    at[0] += PAUSE_DETECTED_AFTER_US
    assert clock() == at[0] and not pauses
    at[0] += PAUSE_DETECTED_AFTER_US + 1
    assert clock() == at[0] and pauses == [PAUSE_DETECTED_AFTER_US + 1]
    assert clock() == at[0] and len(pauses) == 1


def test_a_warm_up_lasts_longer_by_a_pause_in_it():
    at = [0]
    clock = PauseAwareClock(lambda: at[0])
    warm_up = WarmUp(clock, 3_000_000)
    clock.on_pause(warm_up.compensate_pause)
    at[0] += 60_000_000
    assert not warm_up.over and warm_up.fleet_may_be_starting
    for _ in range(30):
        at[0] += 100_000
        assert clock() == at[0]
    assert warm_up.over


@virtual_time
async def test_a_new_leader_that_is_paused_in_its_warm_up_still_waits_for_reports():
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform(2)
    for number in range(2):
        fleet.add(f"b{number}")
    platform.add_topic("default/t")
    first, second = (LeaderInMemory(platform, fleet, store) for _ in range(2))
    async with running_leader(first):
        await wait_until(lambda: "default/t" in first.topics and first.topics["default/t"].layout)
        await wait_until(lambda: first.tasks.idle)
    task = asyncio.create_task(second.loop.run())  # no broker has reported to it yet
    await wait_until(lambda: "default/t" in second.topics and second.topics["default/t"].layout)
    await pause_process(60)
    second.loop.reconcile()
    managed = second.topics["default/t"]
    assert managed.layout is not None and all(not s.successors for s in managed.layout.segments)
    assert managed.reconciler is not None and managed.reconciler.warm_up_until > second.parts.clock()
    await second.loop.stop()
    await task
