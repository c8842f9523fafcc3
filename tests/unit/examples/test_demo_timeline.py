"""The demo's picture of the key space, and what it says was sent."""

from __future__ import annotations

import pyarrow as pa

from examples.demo import sent_per_carrier
from examples.demo_timeline import ROWS, Timeline
from smq import BrokerInfo, SegmentInfo, TopicInfo


def segment(start: int, stop: int, number: int, phase: str, broker: str, *successors: str) -> SegmentInfo:
    name = f"f-{start}-{stop}-{number}"
    return SegmentInfo(
        name=name,
        number=number,
        start=start,
        stop=stop,
        phase=phase,
        durability="Replicated",
        brokers=(broker,),
        predecessors=(),
        successors=successors,
        opened_because="Split",
        sealed_because="",
        opened_at=None,
        sealed_at=None,
        end=None,
        bytes=0,
        lost=None,
    )


def topic(*segments: SegmentInfo) -> TopicInfo:
    return TopicInfo(
        name="default/f",
        uid="u",
        partitions=1024,
        key="",
        schema=(),
        durability="Replicated",
        segments=segments,
        sealed_segments=0,
        messages_per_second=0.0,
        bytes_per_second=0.0,
        conditions=(),
        layout_version=1,
    )


def brokers(count: int) -> list[BrokerInfo]:
    return [
        BrokerInfo(
            name=f"broker-{i + 1}",
            incarnation="i",
            address="h:1",
            state="alive",
            tail_bytes=0,
            memory_limit=0,
            segments=(),
        )
        for i in range(count)
    ]


def test_each_second_is_a_column_and_each_segment_begins_with_its_primary() -> None:
    timeline = Timeline()
    one = segment(0, 1024, 0, "open", "broker-1")
    half = (segment(0, 512, 1, "open", "broker-1"), segment(512, 1024, 2, "open", "broker-12"))
    sealing = segment(0, 1024, 0, "sealing", "broker-1", half[0].name)
    for at, segments in (
        (0.0, (one,)),
        (0.4, (one,)),
        (1.0, (sealing, segment(0, 512, 1, "pending", "x"))),
        (2.0, half),
    ):
        timeline.note(at, topic(*segments), brokers(2))

    lines = [line[10:].rstrip() for line in timeline.render(80).plain.splitlines()[1:]]

    assert lines[0] == "111"
    assert lines[1] == "···"
    assert lines[ROWS // 2] == "··+"
    assert lines[ROWS] == "112" and lines[ROWS + 1] == "222"
    assert (timeline.most_segments, timeline.most_brokers) == (2, 2)


def test_a_long_time_fits_into_the_width() -> None:
    timeline = Timeline()
    for second in range(500):
        timeline.note(second, topic(segment(0, 1024, 0, "open", "broker-1")), brokers(1))
    assert all(len(line) <= 80 for line in timeline.render(80).plain.splitlines())


def test_nothing_was_seen_yet() -> None:
    assert "brokers" in Timeline().render(80).plain


def test_what_was_sent_is_counted_to_the_last_flight() -> None:
    source = pa.table({"carrier": ["AA", "UA", "AA", "DL"]})
    assert sent_per_carrier(source, 0) == {"AA": 0, "UA": 0, "DL": 0}
    assert sent_per_carrier(source, 6) == {"AA": 3, "UA": 2, "DL": 1}
    assert sent_per_carrier(source, 8) == {"AA": 4, "UA": 2, "DL": 2}
