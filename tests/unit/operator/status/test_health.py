"""Health issues are reported once they last, and by one monitor for all who show them."""

from __future__ import annotations

import asyncio

import pytest

from smq_core.access.quotas import Quota, TopicQuota
from smq_core.model.entities import Durability
from smq_operator.status.health import Debouncer, HealthIssues, HealthMonitor
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.waiting import wait_until

TOPIC = "default/t"


def test_an_item_is_reported_once_it_has_lasted() -> None:
    debouncer: Debouncer[str] = Debouncer(raise_after_us=3)
    assert debouncer.update(["a"], 10) == ()
    assert debouncer.update(["a"], 12) == ()
    assert debouncer.update(["a"], 13) == ("a",)
    assert debouncer.update([], 14) == ()


def test_an_item_that_was_away_begins_anew() -> None:
    debouncer: Debouncer[str] = Debouncer(raise_after_us=3)
    debouncer.update(["a"], 10)
    debouncer.update([], 11)
    assert debouncer.update(["a"], 13) == ()
    assert debouncer.update(["a"], 16) == ("a",)


def test_an_item_is_reported_until_it_has_been_away() -> None:
    debouncer: Debouncer[str] = Debouncer(clear_after_us=5)
    assert debouncer.update(["a"], 10) == ("a",)
    assert debouncer.update(["b"], 12) == ("a", "b"), "the one that was reported first comes first"
    assert debouncer.update(["b"], 15) == ("b",)
    assert debouncer.update([], 19) == ("b",)
    assert debouncer.update([], 20) == ()


@pytest.mark.parametrize("quotas", [(TopicQuota(identity="*", produce=Quota(streams=1)),), ()])
def test_quotas_are_an_issue_of_an_open_release(quotas: tuple[TopicQuota, ...]) -> None:
    async def main() -> None:
        store = open_store("memory://")
        fleet, platform = FakeFleet(store), FakePlatform()
        fleet.add("a")
        platform.add_topic(TOPIC, replicas=1, durability=Durability.STORED, quotas=quotas)
        leader = LeaderInMemory(platform, fleet, store)
        async with running_leader(leader):
            await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].topic)
            for is_open in (True, False):
                monitor = HealthMonitor(
                    topics=leader.topics,
                    registry=leader.registry,
                    clock=leader.parts.clock,
                    warm_up_us=0,
                    is_open=is_open,
                )
                running = asyncio.create_task(monitor.run())
                await wait_until(lambda: monitor.warmed_up)  # noqa: B023
                monitor.check()
                assert monitor.issues(TOPIC).quotas_ignored is (is_open and bool(quotas))
                running.cancel()
            leader.health.warm_up_us = 0
            leader.health.check()
            assert leader.health.issues(TOPIC).quotas_ignored is bool(quotas), "this one has no security"

    asyncio.run(main())


def test_a_drained_broker_is_an_issue_after_the_warm_up_and_until_the_topic_is_deleted() -> None:
    async def main() -> None:
        store = open_store("memory://")
        fleet, platform = FakeFleet(store), FakePlatform(2)
        for name in "ab":
            fleet.add(name)
        platform.add_topic(TOPIC, replicas=2)
        leader = LeaderInMemory(platform, fleet, store, warm_up_us=60_000_000)
        async with running_leader(leader):
            await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].layout)
            for broker in leader.registry.alive(leader.parts.clock()):
                broker.draining = True
            late = leader.health
            late.check()
            assert not late.warmed_up and late.issues(TOPIC) == HealthIssues()

            monitor = HealthMonitor(
                topics=leader.topics, registry=leader.registry, clock=leader.parts.clock, warm_up_us=0
            )
            monitor.check()
            assert monitor.issues(TOPIC) == HealthIssues(), "it does not run yet"
            task = asyncio.create_task(monitor.run())
            await wait_until(lambda: {r.broker for r in monitor.issues(TOPIC).draining} == {"a", "b"})
            del platform.topics[TOPIC]
            leader.loop.platform_changed()
            await wait_until(lambda: not leader.topics)
            monitor.check()
            assert monitor.issues(TOPIC) == HealthIssues()
            task.cancel()

    asyncio.run(main())
