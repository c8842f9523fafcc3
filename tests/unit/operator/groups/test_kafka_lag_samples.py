"""The lag of groups of Kafka clients for the metrics: from files, and from the watermarks that brokers report."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from smq_core.model.entities import SECOND
from smq_operator.cleanup.filer_clock import FilerClock
from smq_operator.groups import kafka_lag_samples
from smq_operator.groups.kafka_groups import KafkaGroups
from smq_operator.groups.kafka_lag_samples import KafkaLagSamples
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_storage.object_store.store import open_store
from support.data.counted_topic import CountedTopic
from unit.operator.groups.test_kafka_group_lags import commit


class Sampled:
    """A topic with one partition, of which two messages are in a file. ``watermarks`` is what brokers report."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND
        self.counted = CountedTopic(open_store("memory://"), 1)
        self.segment = self.counted.open()
        self.counted.write(self.segment, [0, 0])
        self.watermarks: dict[str, int] = {self.segment: 2}
        managed: Any = SimpleNamespace(
            name=self.counted.topic.name, topic=self.counted.topic, deleted=False, reconciler=self
        )
        self.topics: dict[str, Any] = {managed.name: managed}
        pool = StorePool(self.counted.store, None)
        groups = KafkaGroups(pool, lambda: self.now, FilerClock(pool, lambda: self.now), LeaderProblems())
        self.samples = KafkaLagSamples(topics=self.topics, groups=groups, store=pool, clock=lambda: self.now)  # type: ignore[arg-type]

    def commit(self, name: str, offsets: dict[int, int]) -> None:
        commit(self.counted.store, self.counted.topic, name, offsets)

    async def sample(self) -> Mapping[str, tuple[int, int]]:
        """Messages and age in seconds, by group."""
        await self.samples.sample()
        found = self.samples.reports[self.counted.topic.name]
        return {it.group: (it.lag.messages, it.lag.age // SECOND) for it in found}


async def test_messages_in_memory_count_as_soon_as_brokers_report_them() -> None:
    sampled = Sampled()
    sampled.commit("g", {0: 2})
    assert await sampled.sample() == {"g": (0, 0)}
    sampled.watermarks[sampled.segment] = 7
    sampled.now += 10 * SECOND
    assert (await sampled.sample())["g"][0] == 5
    assert sampled.samples.counts == {sampled.counted.topic.name: 1}


async def test_the_age_is_how_long_ago_the_topic_had_as_many_messages_less() -> None:
    sampled = Sampled()
    sampled.commit("g", {0: 2})
    await sampled.sample()
    sampled.now += 10 * SECOND
    sampled.watermarks[sampled.segment] = 12
    await sampled.sample()
    sampled.now += 30 * SECOND
    assert (await sampled.sample())["g"] == (10, 40)


async def test_messages_of_before_the_first_sample_are_as_old_as_it_at_least() -> None:
    sampled = Sampled()
    sampled.commit("g", {0: 0})
    await sampled.sample()
    sampled.now += 20 * SECOND
    assert await sampled.sample() == {"g": (2, 20)}


async def test_topics_without_such_groups_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = Sampled()
    monkeypatch.setattr(kafka_lag_samples, "stored_ends", lambda *_: pytest.fail("nobody needs it"))
    assert await sampled.sample() == {}
    assert sampled.samples.counts == {sampled.counted.topic.name: 0}


async def test_only_groups_that_were_active_last_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_lag_samples, "MAX_REPORTED_GROUPS", 1)
    sampled = Sampled()
    sampled.commit("a", {0: 0})
    sampled.commit("b", {0: 1})
    assert list(await sampled.sample()) == ["a"]
    assert sampled.samples.counts == {sampled.counted.topic.name: 2}
