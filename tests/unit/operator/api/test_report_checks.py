"""What of a report counts, when anybody may send one in any name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout
from smq_core.model.layout_transitions import sealed_entry
from smq_operator.api import report_checks
from smq_operator.brokers import registry as registries
from smq_proto.v1 import brokers_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.catalog.sealed_index import Index
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


@asynccontextmanager
async def open_topic() -> AsyncIterator[tuple[LeaderInMemory, Layout]]:
    """A leader with a topic of one segment, on two of three brokers."""
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform(3)
    for number in range(3):
        fleet.add(f"b{number}")
    platform.add_topic(TOPIC, min_segments=1)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].layout is not None)
        layout = leader.topics[TOPIC].layout
        assert layout is not None
        yield leader, layout


def report_of(broker: str = "mallory", *segments: pb.SegmentReport, **fields: object) -> brokers_pb2.BrokerReport:
    given = {"incarnation": f"i-{broker}", "address": f"{broker}:1"} | fields
    return brokers_pb2.BrokerReport(
        protocol=PROTOCOL, broker=broker, status=pb.BrokerStatus(segments=segments), **given
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["segments", "unresponsive brokers", "former incarnations"])
@virtual_time
async def test_a_report_that_is_too_large_is_refused_before_it_is_read(what: str):
    report = report_of()
    if what == "segments":
        report.status.segments.extend([pb.SegmentReport(topic="x", segment="s")] * (report_checks.MAX_SEGMENTS + 1))
    else:
        names = report.unresponsive if what == "unresponsive brokers" else report.recovered
        names.extend(str(number) for number in range(report_checks.MAX_INCARNATIONS + 1))
    async with open_topic() as (leader, _):
        with pytest.raises(RpcAborted, match=f"{what}, at most"):
            await leader.call("Report", report)
        assert leader.registry.get("i-mallory") is None


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e300])
@virtual_time
async def test_a_report_with_a_duration_that_is_none_is_refused(seconds: float):
    """What is wrong with brokers is compared and shown in one task for all topics."""
    of_the_filer, of_a_segment = report_of(), report_of("mallory", pb.SegmentReport(stalled_seconds=seconds))
    of_the_filer.status.filer_failing_seconds = seconds
    async with open_topic() as (leader, _):
        for report in (of_the_filer, of_a_segment):
            with pytest.raises(RpcAborted, match="a duration of"):
                await leader.call("Report", report)
        assert leader.registry.get("i-mallory") is None


@virtual_time
async def test_segments_of_other_brokers_do_not_count():
    async with open_topic() as (leader, layout):
        segment = layout.segments[0]
        fake = pb.SegmentReport(
            topic=TOPIC,
            uid=layout.uid,
            segment=segment.name,
            primary=True,
            state=pb.SegmentReport.FENCED,
            end=900,
            watermark=900,
        )
        stale = pb.SegmentReport(topic="default/gone", uid="u", segment="gone-0-16-0", state=pb.SegmentReport.OPEN)
        await leader.call("Report", report_of("mallory", fake, stale))
        broker = leader.registry.get("i-mallory")
        assert broker is not None and [it.segment for it in broker.status.segments] == ["gone-0-16-0"]
        reconciler = leader.topics[TOPIC].reconciler
        assert reconciler is not None and reconciler.layout is not None
        assert [it.name for it in reconciler.layout.segments if not it.successors] == [segment.name]


@pytest.mark.parametrize(
    ("broker", "held_by", "dropped"), [("b1", ("b1", "b2"), 0), ("b3", ("b1", "b2"), 1), ("b3", (), 0)]
)
@virtual_time
async def test_only_brokers_that_held_a_sealed_segment_report_it(broker: str, held_by: tuple[str, ...], dropped: int):
    async with open_topic() as (leader, layout):
        managed = leader.topics[TOPIC]
        planned = replace(layout.segments[0], name="t-0-16-99")
        entry = replace(
            sealed_entry(planned, SealOutcome(segment="t-0-16-99", end=5, producers={}), 0), brokers=held_by
        )
        managed.index.merge(Index(entries=(entry,)))
        late = pb.SegmentReport(
            topic=TOPIC, uid=layout.uid, segment=entry.name, state=pb.SegmentReport.SEALED, end=9, watermark=9
        )
        assert report_checks.drop_foreign_segments(report_of(broker, late), leader.topics) == dropped


@virtual_time
async def test_a_process_reports_what_its_journal_has_of_a_former_one():
    async with open_topic() as (leader, layout):
        (segment,) = layout.segments
        report = pb.SegmentReport(
            topic=TOPIC, uid=layout.uid, segment=segment.name, state=pb.SegmentReport.SEALED, end=9
        )
        (other,) = {f"b{n}" for n in range(3)} - {it.broker for it in segment.replicas}
        for broker, dropped in ((segment.primary.broker, 0), (other, 1)):
            next_process = report_of(broker, report, incarnation="i-next")
            assert report_checks.drop_foreign_segments(next_process, leader.topics) == dropped


@pytest.mark.parametrize("forged", [{"address": "mallory:1"}, {"broker": "mallory"}])
@virtual_time
async def test_a_report_in_the_name_of_another_incarnation_is_refused(forged: dict[str, str]):
    async with open_topic() as (leader, layout):
        primary = layout.segments[0].primary
        honest = {"broker": primary.broker, "incarnation": primary.incarnation, "address": primary.address}
        with pytest.raises(RpcAborted, match=f"is broker {primary.broker} at {primary.address}"):
            await leader.call("Report", report_of(**(honest | forged | {"leaving": True})))  # type: ignore[arg-type]
        broker = leader.registry.get(primary.incarnation)
        assert broker is not None and not broker.draining


@virtual_time
async def test_the_journal_of_another_broker_cannot_be_claimed():
    async with open_topic() as (leader, layout):
        primary = layout.segments[0].primary
        del leader.registry._brokers[primary.incarnation]  # as at a new leader
        with pytest.raises(RpcAborted, match="has no journal of incarnation"):
            await leader.call("Report", report_of("mallory", recovered=[primary.incarnation]))
        await wait_until(lambda: leader.registry.get(primary.incarnation) is not None, "its own report is accepted")
        broker = leader.registry.get(primary.incarnation)
        assert broker is not None and broker.terminated is None


@virtual_time
async def test_fakes_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registries, "GONE_RETENTION_US", 3_000_000)
    async with open_topic() as (leader, _):
        await leader.call("Report", report_of())
        assert leader.registry.get("i-mallory") is not None
        await wait_until(lambda: leader.registry.get("i-mallory") is None)
        assert len(leader.registry.all()) == 3, "those that report stay"


@virtual_time
async def test_former_incarnations_take_no_place_of_brokers_and_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report_checks, "MAX_BROKERS", 6)
    monkeypatch.setattr(registries, "MAX_FORMER", 10)
    async with open_topic() as (leader, layout):
        for turn in range(3):  # a known reporter may name others each time
            fakes = [f"former-{turn}-{number}" for number in range(20)]
            await leader.call("Report", report_of("mallory", recovered=fakes))
        assert len(leader.registry.all()) <= 3 + 1 + 10
        await leader.call("Report", report_of("honest"))
        primary = layout.segments[0].primary
        del leader.registry._brokers[primary.incarnation]  # as at a new leader
        fields = {"incarnation": "i-next", "recovered": [primary.incarnation]}
        leader.reports_paused = True
        await leader.call("Report", report_of(primary.broker, **fields))
        former = leader.registry.get(primary.incarnation)
        assert former is not None and former.journal_holder is leader.registry.get("i-next"), "a layout names it"


@virtual_time
async def test_a_broker_that_the_platform_knows_is_always_registered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report_checks, "MAX_BROKERS", 3)
    async with open_topic() as (leader, _):
        monkeypatch.setattr(leader.platform, "is_current_incarnation", lambda broker, _: broker == "honest" or None)
        with pytest.raises(RpcAborted, match="registered already"):
            await leader.call("Report", report_of("m1"))
        await leader.call("Report", report_of("honest"))
        assert leader.registry.get("i-honest") is not None


@virtual_time
async def test_no_broker_is_forgotten_before_all_layouts_were_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report_checks, "MAX_BROKERS", 4)
    async with open_topic() as (leader, _):
        await leader.call("Report", report_of("silent"))
        await asyncio.sleep(registries.SUSPECT_AFTER_US / 1e6 + 1)
        leader.topics.synced = False
        with pytest.raises(RpcAborted, match="registered already"):
            await leader.call("Report", report_of("m1"))
        assert leader.registry.get("i-silent") is not None
        leader.topics.synced = True
        await leader.call("Report", report_of("m1"))
        assert leader.registry.get("i-silent") is None and "i-silent" in leader.fleet.forgotten


@virtual_time
async def test_too_many_brokers_are_refused_until_some_are_gone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report_checks, "MAX_BROKERS", 5)
    async with open_topic() as (leader, _):
        await leader.call("Report", report_of("m1"))
        await leader.call("Report", report_of("m2"))
        with pytest.raises(RpcAborted, match="registered already"):
            await leader.call("Report", report_of("m3"))

        async def accepted() -> bool:
            try:
                await leader.call("Report", report_of("m3"))
            except RpcAborted:
                return False
            return True

        await wait_until(accepted, "the silent ones are forgotten")


@virtual_time
async def test_reports_of_strangers_have_a_size_together(monkeypatch: pytest.MonkeyPatch):
    """The leader keeps the last report of each broker, and anybody may send one under any number of names."""
    unknown = pb.SegmentReport(topic="default/x", uid="u", segment="s" * 900, state=pb.SegmentReport.OPEN)
    monkeypatch.setattr(report_checks, "MAX_REPORTED_BYTES", 5_000)
    async with open_topic() as (leader, layout):
        await leader.call("Report", report_of("m1", unknown))
        await leader.call("Report", report_of("m2", unknown))
        await leader.call("Report", report_of("m2", unknown))  # which replaces the former one
        for broker, segments in (("m1", 5), ("m3", 4)):
            with pytest.raises(RpcAborted, match="have 5,000 bytes already"):
                await leader.call("Report", report_of(broker, *[unknown] * segments))
        platform_knows = {"i-m1": True}
        monkeypatch.setattr(leader.platform, "is_current_incarnation", lambda _, it: platform_knows.get(it))
        await leader.call("Report", report_of("m1", *[unknown] * 9))
        await asyncio.sleep(registries.SUSPECT_AFTER_US / 1e6 + 1)
        await leader.call("Report", report_of("m3", *[unknown] * 5))
        assert leader.registry.get("i-m2") is None, "the silent one is forgotten"
        assert all(leader.registry.get(it.incarnation) is not None for it in layout.segments[0].replicas)
