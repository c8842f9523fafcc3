"""Brokers locate topics for clients that cannot reach the leader, by the topic's files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_broker.leader_client import locator
from smq_broker.leader_client.locator import Locator
from smq_core.errors import UnknownTopic
from smq_core.model.entities import Layout, Topic, TopicSpec
from smq_storage.catalog import layouts, topics
from smq_storage.object_store.store import StoreSettings

TOPIC = Topic("default/t", "uid", TopicSpec(partitions=8))


def test_a_layout_is_not_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locator, "CACHE_TTL_SECONDS", 0.0)
    settings = StoreSettings(url="memory://layouts-of-a-locator")
    store = settings.open()
    topics.put_current(store, TOPIC.name, TOPIC.uid, None)
    topics.put_topic(store, TOPIC)
    layout = Layout(topic=TOPIC.name, uid=TOPIC.uid, partitions=8, version=5, next_number=1, segments=(), writer="w")
    etag = layouts.put_layout(store, layout, None)
    located = Locator(store, settings)
    assert located.locate("t").layout.version == 5
    layouts.put_layout(store, replace(layout, version=6, writer="x"), etag)
    assert located.locate("t").layout.version == 6


def test_a_topic_is_located_until_it_is_deleted() -> None:
    settings = StoreSettings(url="memory://files-of-a-locator")
    store = settings.open()
    with pytest.raises(UnknownTopic):
        Locator(store, settings).locate("t")
    etag = topics.put_current(store, TOPIC.name, TOPIC.uid, None)
    topics.put_topic(store, TOPIC)
    layouts.put_layout(
        store,
        Layout(topic=TOPIC.name, uid=TOPIC.uid, partitions=8, version=5, next_number=1, segments=(), writer="w"),
        None,
    )
    assert Locator(store, settings).locate("t").topic.uid == "uid"
    topics.put_current(store, TOPIC.name, "", etag)
    with pytest.raises(UnknownTopic):
        Locator(store, settings).locate("t")
