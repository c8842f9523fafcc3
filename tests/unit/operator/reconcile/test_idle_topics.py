"""A topic to which nobody writes costs little, and is as quick as any other when something happens."""

from __future__ import annotations

from smq_core.scaling.segment_load import TrafficCounters
from smq_operator.brokers.registry import assigned_work
from smq_operator.reconcile.topics import managed_topic as topics
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


async def wait_until_idle(leader: LeaderInMemory) -> topics.ManagedTopic:
    await wait_until(lambda: TOPIC in leader.topics and (it := leader.topics[TOPIC].reconciler) and it.is_idle)
    managed = leader.topics[TOPIC]
    await wait_until(lambda: managed.next_check_at > leader.parts.clock() + topics.CHECK_INTERVAL_US)
    return managed


def started(brokers: str = "abc") -> LeaderInMemory:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform(len(brokers))
    for name in brokers:
        fleet.add(name)
    platform.add_topic(TOPIC, min_segments=3)
    return LeaderInMemory(platform, fleet, store)


@virtual_time
async def test_a_dead_broker_is_replaced_at_once_and_not_at_the_next_poll() -> None:
    leader = started()
    async with running_leader(leader):
        managed = await wait_until_idle(leader)
        assert managed.layout is not None
        dead = managed.layout.segments[0].primary.incarnation
        managed.next_check_at = 1 << 62  # nobody looks at it again for its own sake
        leader.platform.terminated[dead] = "its process was reaped"
        await wait_until(lambda: managed.layout is not None and dead not in str(managed.layout.segments))


@virtual_time
async def test_a_write_wakes_an_idle_topic() -> None:
    leader = started()
    async with running_leader(leader):
        managed = await wait_until_idle(leader)
        assert managed.reconciler is not None and managed.layout is not None
        name, now = managed.layout.segments[0].name, leader.parts.clock()
        for second in (0, 1):
            managed.reconciler.load.observe(name, TrafficCounters(7, 7, 7), now + second)
        assert managed.reconciler.load.changed_at == now, "the second report said nothing new"
        managed.mark_active(now)
        assert managed.next_check_at <= now + topics.CHECK_INTERVAL_US
        assert managed.next_check_after(now) == now + topics.CHECK_INTERVAL_US
        assert (
            managed.next_check_after(now + topics.IDLE_AFTER_US)
            == now + topics.IDLE_AFTER_US + topics.IDLE_CHECK_INTERVAL_US
        )


@virtual_time
async def test_the_work_of_brokers_is_counted_as_layouts_change() -> None:
    leader = started()
    topics_led, assignments = leader.topics, leader.parts.assignments

    def counted() -> bool:
        work = assigned_work(topics_led.layouts().values())
        return {name: view.segments for name, view in assignments.views().items() if view.segments} == dict(work)

    async with running_leader(leader):
        managed = await wait_until_idle(leader)
        assert counted() and any(view.segments for view in assignments.views().values())
        leader.platform.add_topic(TOPIC, min_segments=6)
        await wait_until(lambda: managed.layout is not None and len(managed.layout.segments) == 6 and counted())
        del leader.platform.topics[TOPIC]
        await wait_until(lambda: not any(view.segments for view in assignments.views().values()))
