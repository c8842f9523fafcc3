"""What a streaming query is asked for, without Spark."""

from __future__ import annotations

from pyspark_smq.options import Connection, StreamOptions
from pyspark_smq.planning.stream_plan import IDLE_SECONDS, MAX_IDLE_SECONDS, StreamPlan
from smq.reading import OpenedTopic, TopicLocation
from smq_core.model.entities import TopicSchema
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store.store import StoreSettings
from support.data.sealed_topic import END, make_topic, segment_name, write_segment


def test_a_query_polls_less_often_while_nothing_comes() -> None:
    settings = StoreSettings("memory://test_a_query_polls_less_often")
    store = settings.open()
    topic = make_topic(store, 1)
    location = TopicLocation(topic.name, topic.uid, settings)
    opened = OpenedTopic(location, topic, chunk_schema(()), "key", TopicSchema(0, ()))
    waits: list[float] = []
    options = StreamOptions(Connection(topic.name), start="latest", files_only=True)
    plan = StreamPlan(options, opened, sleep=waits.append)

    at = plan.initial()
    for _ in range(6):
        assert plan.following(at, None, None) == at
    assert waits == [IDLE_SECONDS, 0.1, 0.2, 0.4, MAX_IDLE_SECONDS, MAX_IDLE_SECONDS]

    write_segment(store, topic, segment_name(1))  # the open segment
    after = plan.following(at, None, None)
    assert after.positions == {segment_name(1): END}
    assert len(waits) == 6
    assert plan.following(after, None, None) == after
    assert waits[6:] == [IDLE_SECONDS]
