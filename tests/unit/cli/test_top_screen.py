"""The screen of `smq top`."""

from __future__ import annotations

import io
from dataclasses import replace

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
        name, number, start, stop, phase, "Replicated", brokers, (), (), "Split", "", 0, 0, None, 0, None
    )


def load(name: str, messages: int, *, primary: bool = True, state: str = "open") -> SegmentLoad:
    return SegmentLoad("default/f", name, primary, state, messages, messages, 0, 1 << 20, messages, messages * 100, 1)


def snapshot(at: float, messages: int, extra: tuple[SegmentInfo, ...] = ()) -> ClusterSnapshot:
    segments = (segment(0, 512, 1, "open", "b-0", "b-1"), segment(512, 1024, 2, "sealing", "b-1", "b-0"), *extra)
    topic = TopicInfo("default/f", "u", 1024, "", (), "Replicated", segments, 7, 0.0, 0.0, (), 1)
    brokers = (
        BrokerInfo("b-0", "abcdef012345", "h:1", "alive", 64 << 20, 128 << 20, (load("f-0-512-1", messages),)),
        BrokerInfo("b-1", "ffffffffffff", "h:2", "suspect", 0, 128 << 20, (load("f-0-512-1", 0, primary=False),)),
        BrokerInfo("b-0", "000000000000", "h:3", "gone", 0, 0, ()),
        BrokerInfo("b-1", "111111111111", "h:4", "recovered", 0, 0, ()),
    )
    decisions = tuple(DecisionInfo(i * 1_000_000, "default/f", "split", ("f-0-1024-0",), f"why {i}") for i in range(9))
    return ClusterSnapshot(at, (topic,), brokers, decisions)


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
    rates.update(ClusterSnapshot(1, (), (), ()))

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
    topic = TopicInfo("default/f", "u", 1024, "", (), "Replicated", many, 0, 0.0, 0.0, (), 1)

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
    assert "smq apply -f" in text_of(render(ClusterSnapshot(0, (), (), ()), SegmentRates(), width=80))


def crowd(at: float, count: int, topics: int = 1) -> ClusterSnapshot:
    """``count`` segments and brokers; the later a segment, the more is written to it."""
    edges = [i * 65_536 // count for i in range(count + 1)]
    segments = tuple(segment(edges[i], edges[i + 1], i, "open", f"b-{i}") for i in range(count))
    brokers = tuple(
        BrokerInfo(f"b-{i}", f"{i:012}", "h:1", "alive", i, 1 << 20, (load(s.name, int(at * i)),))
        for i, s in enumerate(segments)
    )
    made = tuple(
        TopicInfo(f"default/f{n}", "u", 65_536, "", (), "Replicated", segments if n == 0 else (), 0, 0.0, 0.0, (), 1)
        for n in range(topics)
    )
    return ClusterSnapshot(at, made, brokers, ())


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
    well = ClusterSnapshot(0, (topic,), (), ())
    assert "FilerAvailable" not in text_of(render(well, SegmentRates(), width=80))
    problem = ProblemInfo("filer", "the filer takes no writes since 10:00:00 UTC (the leader: 507). Replicated topics")
    topic = replace(topic, conditions=filer("False"))
    text = text_of(render(ClusterSnapshot(0, (topic,), (), (), (problem,)), SegmentRates(), width=80))
    assert "the filer takes no writes since 10:00:00 UTC: `smq topic list` says why" in text


def test_other_problems_are_no_outage_of_the_filer() -> None:
    assert not filer_notice([ProblemInfo("document x", "unreadable")])
