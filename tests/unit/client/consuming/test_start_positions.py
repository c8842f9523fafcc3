"""Where a consumer starts: at a time, at the latest messages, at positions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from smq.consuming import start_positions
from smq.consuming.consumer_options import Start, check_start
from smq.consuming.start_positions import seek_to_start
from smq_core.errors import InvalidRequest, Unavailable, Unreachable
from smq_core.model.entities import Replica
from smq_core.model.loss import Loss
from smq_core.reading.segment_dag import ReadProgress, build_nodes
from smq_proto.v1 import data_pb2 as pb
from support.data.stored_segment import CountingStore
from support.in_memory.topic import PARTITIONS, REPLICAS, TopicInMemory

FUTURE = timedelta(days=1)
LATER = datetime.now(UTC) + FUTURE
SECOND = 1_000_000


@pytest.fixture
def topic() -> TopicInMemory:
    return TopicInMemory()


def seek(topic: TopicInMemory, start: Start, ends: dict[str, int] | None = None) -> tuple[ReadProgress, int]:
    """The progress of a reader that starts there, and the time before which messages are left out."""
    reader = ReadProgress()
    reader.update(build_nodes(topic.sealed.values(), topic.snapshot.layout))
    view: Any = topic
    return reader, seek_to_start(view, reader, start, topic.sealed.values(), ends or {})


def micros(at: datetime) -> int:
    return round(at.timestamp() * SECOND)


# ---- a time


def test_a_time_in_the_past_skips_no_chunk(topic: TopicInMemory) -> None:
    topic.put_chunk(topic.first, 0, [1, 2])
    topic.put_chunk(topic.first, 2, [3])
    start = datetime.now(UTC) - FUTURE
    reader, since = seek(topic, start)
    assert (reader.positions, since) == ({}, micros(start))


def test_a_time_after_all_chunks_skips_to_the_last_and_not_beyond(topic: TopicInMemory) -> None:
    topic.put_chunk(topic.first, 0, [1, 2])
    topic.put_chunk(topic.first, 2, [3])
    reader, _ = seek(topic, datetime.now(UTC) + FUTURE)
    assert reader.positions == {topic.first.name: 2}, "the last chunk's end is not known from its name"


def test_a_chunk_that_a_wrong_clock_may_have_dated_is_not_skipped(topic: TopicInMemory) -> None:
    topic.put_chunk(topic.first, 0, [1, 2])
    topic.put_chunk(topic.first, 2, [3])
    limit = topic.chain(topic.first).files()[-1].modified + start_positions.MAX_CLOCK_SKEW
    assert seek(topic, limit)[0].positions == {}
    assert seek(topic, limit + timedelta(microseconds=1))[0].positions == {topic.first.name: 2}


def test_only_segments_that_were_sealed_before_the_time_are_skipped(topic: TopicInMemory) -> None:
    second = topic.segment(1, predecessors=(topic.first.name,))
    third = topic.segment(2, predecessors=(second.name,))
    start = datetime(2024, 1, 1, tzinfo=UTC)
    topic.seal(topic.first, 5, second, sealed_at=micros(start) - 1)
    topic.seal(second, 9, third, sealed_at=micros(start))
    reader, since = seek(topic, start)
    assert reader.readable() == [second.name] and reader.positions == {topic.first.name: 5}
    assert since == micros(start)


def test_a_segment_with_a_file_list_is_not_listed_for_a_time(topic: TopicInMemory) -> None:
    topic.put_chunk(topic.first, 0, [1, 2])
    topic.put_chunk(topic.first, 2, [3])
    topic.put_seal(topic.first, 3)
    topic.seal(topic.first, 3, topic.segment(1, predecessors=(topic.first.name,)), sealed_at=micros(LATER))
    assert seek(topic, LATER)[0].positions == {topic.first.name: 3}, "the listed seal chunk"
    topic.name_file_list(topic.first)
    topic.files = counting = CountingStore(topic.files)
    assert seek(topic, LATER)[0].positions == {}, "the fetcher skips by the file list"
    assert counting.requests.listings == 0


def test_a_time_without_a_zone_is_in_utc(topic: TopicInMemory) -> None:
    naive, aware = datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)
    assert seek(topic, naive)[1] == seek(topic, aware)[1] == micros(aware)


# ---- the latest


class FakeBrokers:
    """The replicas' answers, or errors, to the action ``status``."""

    def __init__(self, topic: TopicInMemory) -> None:
        self.answers: dict[str, pb.BrokerStatus | Exception] = {}
        topic.dialer = self  # type: ignore[assignment]

    def flight(self, replica: Replica) -> Any:
        return replica.address

    def call(self, client: str, topic: str, action: str, request: object, timeout: float) -> bytes:
        answer = self.answers.get(client, Unreachable(f"{client} does not answer"))
        if isinstance(answer, Exception):
            raise answer
        return answer.SerializeToString()


def status(incarnation: str, segment: str, watermark: int) -> pb.BrokerStatus:
    return pb.BrokerStatus(
        incarnation=incarnation, segments=[pb.SegmentReport(segment=segment, watermark=watermark, end=watermark + 9)]
    )


def test_the_latest_is_the_watermark_of_any_replica(topic: TopicInMemory) -> None:
    brokers = FakeBrokers(topic)
    second = REPLICAS[1]
    brokers.answers = {second.address: status(second.incarnation, topic.first.name, 7)}
    assert seek(topic, "latest")[0].positions == {topic.first.name: 7}


@pytest.mark.parametrize(
    "answer",
    [
        lambda segment: status("another-start", segment, 99),
        lambda segment: status(REPLICAS[0].incarnation, "another-0-8-4", 99),
    ],
)
def test_the_watermark_of_another_start_or_segment_does_not_count(
    topic: TopicInMemory, answer: Callable[[str], pb.BrokerStatus]
) -> None:
    brokers = FakeBrokers(topic)
    brokers.answers = {REPLICAS[0].address: answer(topic.first.name)}
    topic.put_chunk(topic.first, 0, [1, 2])
    assert seek(topic, "latest")[0].positions == {topic.first.name: 2}, "the chunks decide"


def test_without_any_answer_or_chunk_the_latest_is_not_known(
    topic: TopicInMemory,
) -> None:
    FakeBrokers(topic)
    with pytest.raises(Unavailable, match="reports its watermark"):
        seek(topic, "latest")


def test_sealed_segments_count_as_read_at_the_latest(topic: TopicInMemory) -> None:
    FakeBrokers(topic)
    child = topic.segment(1, predecessors=(topic.first.name,))
    topic.seal(topic.first, 5, child)
    topic.put_chunk(child, 0, [1])
    reader, since = seek(topic, "latest")
    assert (reader.positions, since) == ({topic.first.name: 5, child.name: 1}, 0)


# ---- positions


def test_positions_are_continued_and_their_ancestors_count_as_read(topic: TopicInMemory) -> None:
    child = topic.segment(1, predecessors=(topic.first.name,))
    topic.seal(topic.first, 5, child)
    reader, _ = seek(topic, {child.name: 3})
    assert reader.readable() == [child.name] and reader.positions == {child.name: 3} and not reader.losses


def test_a_position_beyond_the_end_of_a_segment_is_a_loss(topic: TopicInMemory) -> None:
    child = topic.segment(1, predecessors=(topic.first.name,))
    topic.seal(topic.first, 5, child)
    reader, _ = seek(topic, {topic.first.name: 8})
    assert reader.losses == [(topic.first.name, Loss(5, 8))]
    assert reader.readable() == [child.name]


def test_what_retention_removed_after_a_position_is_a_loss(topic: TopicInMemory) -> None:
    child = topic.segment(1, predecessors=(topic.first.name,))
    topic.set_layout([child])
    reader, _ = seek(topic, {topic.first.name: 3}, {topic.first.name: 9})
    assert reader.losses == [(topic.first.name, Loss(3, 9))]


def test_a_position_in_a_segment_that_never_was_marks_nothing_as_read(topic: TopicInMemory) -> None:
    reader, _ = seek(topic, {f"t-0-{PARTITIONS}-77": 3})
    assert reader.readable() == [topic.first.name] and reader.positions == {}
    assert reader.losses == [(f"t-0-{PARTITIONS}-77", Loss(3, 3, at_least=True))]


@pytest.mark.parametrize("start", ["newest", 5, {"a": -1}, {"a": "1"}])
def test_a_start_that_makes_no_sense_is_refused(start: object) -> None:
    with pytest.raises(InvalidRequest):
        check_start(start)
