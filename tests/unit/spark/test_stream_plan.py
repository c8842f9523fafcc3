"""What a streaming query is asked for, without Spark."""

from __future__ import annotations

from pyspark_smq.options import Connection, Start, StreamOptions
from pyspark_smq.planning.stream_plan import IDLE_SECONDS, MAX_IDLE_SECONDS, StreamPlan
from smq.reading import OpenedTopic, TopicLocation
from smq_core.model.entities import Topic, TopicSchema
from smq_storage.catalog import paths
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store.store import Store, StoreSettings
from support.data.sealed_topic import END, make_topic, put_chain, sealed_entry, segment_name, write_segment


def make_plan(name: str, start: Start, waits: list[float]) -> tuple[StreamPlan, Store, Topic]:
    """The plan of a query, and its topic with one sealed segment and an open one."""
    settings = StoreSettings(url=f"memory://{name}")
    store = settings.open()
    topic = make_topic(store, 1)
    location = TopicLocation(topic=topic.name, uid=topic.uid, store=settings)
    opened = OpenedTopic(
        location=location, topic=topic, chunk_schema=chunk_schema(()), key="key", schema=TopicSchema(0, ())
    )
    options = StreamOptions(Connection(topic.name), start=start, files_only=True)
    return StreamPlan(options, opened, sleep=waits.append), store, topic


def test_a_query_polls_less_often_while_nothing_comes() -> None:
    waits: list[float] = []
    plan, store, topic = make_plan("test_a_query_polls_less_often", "latest", waits)

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


def test_available_now_reads_nothing_of_segments_that_begin_later() -> None:
    plan, store, topic = make_plan("test_available_now", "earliest", [])
    write_segment(store, topic, segment_name(1))  # the open segment
    at = plan.initial()
    plan.stop_at_present_ends()

    store.delete(paths.layout(topic.name, topic.uid))
    put_chain(store, topic, [sealed_entry(0, END), sealed_entry(1, END)])
    write_segment(store, topic, segment_name(2))
    assert plan.following(at, None, None).positions == {segment_name(1): END}
