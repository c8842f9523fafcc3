"""What happens to a topic while an answer of the filer about its former state is awaited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from smq_core.model.entities import SealedSegment, TopicSpec
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.loss_recorder import LossRecorder
from smq_operator.reconcile.topics import adoption
from smq_operator.reconcile.topics.adoption import AdoptedTopic, adopt
from smq_operator.reconcile.topics.index_copy import IndexCopy
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.catalog import sealed_index
from smq_storage.object_store.store import open_store
from support.data.sealed_topic import END, make_topic, sealed_entry, segment_name
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.sim.engine.virtual_threads import VirtualEvent
from support.virtual_time import now, virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


@virtual_time
async def test_a_spec_that_changes_while_the_former_one_is_adopted_is_adopted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, gate = VirtualEvent(), VirtualEvent()

    def adopt_slowly(*given: Any) -> AdoptedTopic:
        begun.set()
        gate.wait()
        return adopt(*given)

    monkeypatch.setattr(adoption, "adopt", adopt_slowly)
    store, platform = open_store("memory://"), FakePlatform()
    platform.add_topic(TOPIC, retention_age=1)
    leader = LeaderInMemory(platform, FakeFleet(store), store)
    async with running_leader(leader):
        await wait_until(begun.is_set)
        platform.add_topic(TOPIC, retention_age=2)
        leader.loop.platform_changed()
        await wait_until(lambda: leader.topics[TOPIC].desired.spec.retention_age == 2)
        gate.set()

        def adopted() -> TopicSpec | None:
            topic = leader.topics[TOPIC].topic
            return topic.spec if topic is not None else None

        await wait_until(lambda: (spec := adopted()) is not None and spec.retention_age == 2, what="the newer spec")


@virtual_time
async def test_a_loss_of_a_former_topic_of_the_name_is_none_of_the_next() -> None:
    """Both begin with a segment of the same name."""
    store = open_store("memory://")
    topic = make_topic(store, 1)
    managed = ManagedTopic(DesiredTopic(name=topic.name, spec=topic.spec), topic, index=IndexCopy(is_read=True))
    managed.index.merge(sealed_index.load(store, topic.name, topic.uid))
    of_next: SealedSegment = sealed_entry(0, 3)

    class ReplacesMeanwhile(StorePool):
        async def run(self, call: Any, *given: Any) -> Any:
            found = await super().run(call, *given)
            managed.topic, managed.index.sealed = replace(topic, uid="uid-2"), {of_next.name: of_next}
            return found

    decisions, tasks = DecisionLog(), TaskRunner()
    pool = ReplacesMeanwhile(store, None)
    recorder = LossRecorder(
        topics={topic.name: managed},
        decisions=decisions,
        queue=WorkQueue(),
        store=pool,
        tasks=tasks,
        clock=now,
    )
    assert recorder.handle_positions(managed, "g", {segment_name(0): END + 5})
    await wait_until(lambda: tasks.idle)
    lost = sealed_index.read(store, topic.name, topic.uid)[0].lost
    assert lost is not None and lost.stop == END + 5
    assert managed.index.sealed == {of_next.name: of_next} and not decisions.recent
