"""The screen of `smq top`."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

from rich.console import Console

from smq import BrokerInfo, Condition, DecisionInfo, ProblemInfo, SegmentInfo, SegmentLoad, TopicInfo
from smq.cli.filer_outage import filer_notice
from smq.cli.output.dashboard import (
    MAX_BROKERS,
    MAX_SEGMENTS,
    MAX_TOPICS,
    ClusterSnapshot,
    SegmentRates,
    render,
    render_dense_keyspace,
    render_keyspace,
)


def segment(start: int, stop: int, number: int, phase: str, *brokers: str) -> SegmentInfo:
    name = f"f-{start}-{stop}-{number}"
    return SegmentInfo(
        name=name,
        number=number,
        start=start,
        stop=stop,
        phase=phase,
        durability="Replicated",
        brokers=brokers,
        predecessors=(),
        successors=(),
        opened_because="Split",
        sealed_because="",
        opened_at=None,
        sealed_at=None,
        end=None,
        bytes=0,
        lost=None,
    )


def load(name: str, messages: int, *, primary: bool = True, state: str = "open") -> SegmentLoad:
    return SegmentLoad(
        topic="default/f",
        segment=name,
        primary=primary,
        state=state,
        end=messages,
        watermark=messages,
        chain_end=0,
        tail_bytes=1 << 20,
        messages=messages,
        bytes=messages * 100,
        batches=1,
    )


def snapshot(at: float, messages: int, extra: tuple[SegmentInfo, ...] = ()) -> ClusterSnapshot:
    segments = (segment(0, 512, 1, "open", "b-0", "b-1"), segment(512, 1024, 2, "sealing", "b-1", "b-0"), *extra)
    topic = TopicInfo(
        name="default/f",
        uid="u",
        partitions=1024,
        key="",
        schema=(),
        durability="Replicated",
        segments=segments,
        sealed_segments=7,
        messages_per_second=0.0,
        bytes_per_second=0.0,
        conditions=(),
        layout_version=1,
    )
    brokers = (
        BrokerInfo(
            name="b-0",
            incarnation="abcdef012345",
            address="h:1",
            state="alive",
            tail_bytes=64 << 20,
            memory_limit=128 << 20,
            segments=(load("f-0-512-1", messages),),
        ),
        BrokerInfo(
            name="b-1",
            incarnation="ffffffffffff",
            address="h:2",
            state="suspect",
            tail_bytes=0,
            memory_limit=128 << 20,
            segments=(load("f-0-512-1", 0, primary=False),),
        ),
        BrokerInfo(
            name="b-0",
            incarnation="000000000000",
            address="h:3",
            state="gone",
            tail_bytes=0,
            memory_limit=0,
            segments=(),
        ),
        BrokerInfo(
            name="b-1",
            incarnation="111111111111",
            address="h:4",
            state="recovered",
            tail_bytes=0,
            memory_limit=0,
            segments=(),
        ),
    )
    decisions = tuple(
        DecisionInfo(
            at=datetime.fromtimestamp(i, UTC),
            topic="default/f",
            action="split",
            segments=("f-0-1024-0",),
            reason=f"why {i}",
        )
        for i in range(9)
    )
    return ClusterSnapshot(at=at, topics=(topic,), brokers=brokers, decisions=decisions)


def text_of(what: object) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_rate_is_what_the_primary_counted_over_the_last_seconds() -> None:
    rates = SegmentRates()
    for second in range(10):
        rates.update(snapshot(second, 1000 * second))

    assert rates.of("f-0-512-1") == (1000.0, 100_000.0)
    assert rates.total() == (1000.0, 100_000.0)
    assert rates.of("never seen") == (0.0, 0.0)


def test_segments_that_are_gone_are_forgotten() -> None:
    rates = SegmentRates()
    rates.update(snapshot(0, 5))
    rates.update(ClusterSnapshot(at=1, topics=(), brokers=(), decisions=()))

    assert rates.total() == (0.0, 0.0)


def test_the_ring_is_filled_by_its_segments_and_their_bounds_stand_below() -> None:
    pending = segment(512, 1024, 3, "pending", "b-0")
    ring, bounds = render_keyspace(snapshot(0, 0, (pending,)).topics[0], {"b-0": "red", "b-1": "blue"}, 64)

    assert len(ring.plain) == 64
    assert ring.plain.index("b-0") < 32 < ring.plain.index("b-1 sealing")
    assert (bounds.plain.index("0"), bounds.plain.index("512")) == (0, 32)
    assert bounds.plain.endswith("1024") and len(bounds.plain) == 64


def test_many_segments_do_not_write_over_each_others_bounds() -> None:
    many = tuple(segment(i * 16, i * 16 + 16, i, "open", "b-0") for i in range(64))
    topic = TopicInfo(
        name="default/f",
        uid="u",
        partitions=1024,
        key="",
        schema=(),
        durability="Replicated",
        segments=many,
        sealed_segments=0,
        messages_per_second=0.0,
        bytes_per_second=0.0,
        conditions=(),
        layout_version=1,
    )

    ring, bounds = render_keyspace(topic, {"b-0": "red"}, 64)

    assert len(ring.plain) == 64
    assert all(int(number) % 16 == 0 for number in bounds.plain.split())


def test_the_picture_shows_living_brokers_and_the_last_decisions() -> None:
    rates = SegmentRates()
    for second in range(3):
        rates.update(snapshot(second, 1000 * second))
    text = text_of(render(snapshot(3, 3000), rates, width=80))

    assert "f-0-512-1" in text and "1k/s" in text and "3,000" in text
    assert "suspect" in text and "gone" not in text and "recovered" not in text
    assert "why 8" in text and "why 2" not in text


def test_with_nothing_there_it_says_what_to_do() -> None:
    assert "smq apply -f" in text_of(
        render(ClusterSnapshot(at=0, topics=(), brokers=(), decisions=()), SegmentRates(), width=80)
    )


def crowd(at: float, count: int, topics: int = 1) -> ClusterSnapshot:
    """``count`` segments and brokers; the later a segment, the more is written to it."""
    edges = [i * 65_536 // count for i in range(count + 1)]
    segments = tuple(segment(edges[i], edges[i + 1], i, "open", f"b-{i}") for i in range(count))
    brokers = tuple(
        BrokerInfo(
            name=f"b-{i}",
            incarnation=f"{i:012}",
            address="h:1",
            state="alive",
            tail_bytes=i,
            memory_limit=1 << 20,
            segments=(load(s.name, int(at * i)),),
        )
        for i, s in enumerate(segments)
    )
    made = tuple(
        TopicInfo(
            name=f"default/f{n}",
            uid="u",
            partitions=65_536,
            key="",
            schema=(),
            durability="Replicated",
            segments=segments if n == 0 else (),
            sealed_segments=0,
            messages_per_second=0.0,
            bytes_per_second=0.0,
            conditions=(),
            layout_version=1,
        )
        for n in range(topics)
    )
    return ClusterSnapshot(at=at, topics=made, brokers=brokers, decisions=())


def test_a_thousand_segments_stay_readable() -> None:
    rates = SegmentRates()
    for second in range(3):
        rates.update(crowd(second, 1000))
    lines = text_of(render(crowd(3, 1000), rates, width=110)).splitlines()

    assert len(lines) < 20 + MAX_SEGMENTS + MAX_BROKERS and all(len(line) <= 140 for line in lines)
    text = "\n".join(lines)
    assert "f-65470-65536-999" in text and "f-0-65-0 " not in text, "the busiest are shown"
    assert f"and {1000 - MAX_SEGMENTS} less busy segments" in text and f"{1000 - MAX_BROKERS} other brokers" in text


def test_a_crowded_key_space_shows_how_much_is_written_where() -> None:
    rates = SegmentRates()
    for second in range(3):
        rates.update(crowd(second, 1000))
    bars, bounds = render_dense_keyspace(crowd(3, 1000).topics[0], rates, 80)

    assert len(bars.plain) == 80 and bars.plain[0] == "▁" and bars.plain[-1] == "█"
    numbers = [int(number) for number in bounds.plain.split()]
    assert numbers == sorted(numbers) and (numbers[0], numbers[-1]) == (0, 65_536)


def test_many_topics_do_not_fill_the_picture() -> None:
    text = text_of(render(crowd(0, 10, topics=40), SegmentRates(), width=80))

    assert text.count("ready") == MAX_TOPICS and f"and {40 - MAX_TOPICS} less busy topics" in text


def filer(status: str) -> tuple[Condition, ...]:
    return (Condition("FilerAvailable", status, "Reason", "message"),)


def test_a_filer_that_takes_no_writes_is_named() -> None:
    topic = replace(snapshot(0, 0).topics[0], conditions=filer("True"))
    well = ClusterSnapshot(at=0, topics=(topic,), brokers=(), decisions=())
    assert "FilerAvailable" not in text_of(render(well, SegmentRates(), width=80))
    problem = ProblemInfo("filer", "the filer takes no writes since 10:00:00 UTC (the leader: 507). Replicated topics")
    topic = replace(topic, conditions=filer("False"))
    text = text_of(
        render(
            ClusterSnapshot(at=0, topics=(topic,), brokers=(), decisions=(), problems=(problem,)),
            SegmentRates(),
            width=80,
        )
    )
    assert "the filer takes no writes since 10:00:00 UTC: `smq topic list` says why" in text


def test_other_problems_are_no_outage_of_the_filer() -> None:
    assert not filer_notice([ProblemInfo("document x", "unreadable")])
