"""Invalid requests to an elastic leader are refused or ignored with a reason, and the loop continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from smq_core.model.entities import Layout, Phase
from smq_operator.brokers.registry import Broker
from smq_proto.v1 import admin_pb2, brokers_pb2, groups_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeBroker, FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"
HUGE = 2**64 - 1


class TwoSegmentTopic:
    """A leader with a topic of two segments, t-0-8-0 and t-8-16-1."""

    def __init__(self, brokers: int = 3, **spec: object) -> None:
        store = open_store("memory://")
        self.fleet, self.platform = FakeFleet(store), FakePlatform(brokers)
        for number in range(brokers):
            self.fleet.add(f"b{number}")
        self.platform.add_topic(TOPIC, **({"min_segments": 2} | spec))
        self.leader = LeaderInMemory(self.platform, self.fleet, store)

    @property
    def layout(self) -> Layout:
        found = self.leader.topics[TOPIC].layout
        assert found is not None
        return found

    def open(self, topic: str = TOPIC) -> bool:
        managed = self.leader.topics.get(topic)
        layout = managed.layout if managed is not None else None
        return layout is not None and all(s.phase is Phase.OPEN and not s.successors for s in layout.segments)

    def primary(self, number: int = 0) -> FakeBroker:
        return self.fleet.brokers[self.layout.segments[number].primary.incarnation]

    def known(self, broker: FakeBroker) -> Broker | None:
        return self.leader.registry.get(broker.replica.incarnation)

    def only_ours(self) -> None:
        """From now on brokers report what the test says, and nothing else."""
        for broker in self.fleet.brokers.values():
            broker.report = lambda it=broker: FakeBroker.report(replace(it, held={}))  # type: ignore[method-assign]


@asynccontextmanager
async def open_two_segments(**two_segments: object) -> AsyncIterator[TwoSegmentTopic]:
    made = TwoSegmentTopic(**two_segments)  # type: ignore[arg-type]
    async with running_leader(made.leader):
        await wait_until(made.open, what="the topic is open")
        yield made
        rounds = made.leader.loop.reconciliations
        made.leader.queue.enqueue()
        await wait_until(lambda: made.leader.loop.reconciliations > rounds, what="the loop continues")
        await wait_until(made.open, what="and so does the topic")


def plan(
    action: str | int, *segments: str, at: tuple[int, ...] = (), topic: str = "t"
) -> admin_pb2.ChangeSegmentsRequest:
    return admin_pb2.ChangeSegmentsRequest(topic=topic, action=action, segments=segments, boundaries=at)


PLANS = {
    "before the range": (plan("SPLIT", "t-8-16-1", at=(3,)), r"inside \[8, 16\), between 9 and 15"),
    "after the range": (plan("SPLIT", "t-0-8-0", at=(99,)), r"inside \[0, 8\), between 1 and 7"),
    "at its start": (plan("SPLIT", "t-8-16-1", at=(8,)), "between 9 and 15"),
    "at its end": (plan("SPLIT", "t-0-8-0", at=(8,)), "between 1 and 7"),
    "one right, one wrong": (plan("SPLIT", "t-0-8-0", at=(4, 4_000_000_000)), "between 1 and 7"),
    "a split of two": (plan("SPLIT", "t-0-8-0", "t-8-16-1"), "exactly one segment"),
    "a split of nothing": (plan("SPLIT"), "exactly one segment"),
    "a merge of one": (plan("MERGE", "t-0-8-0"), "two or more"),
    "a merge with itself": (plan("MERGE", "t-0-8-0", "t-0-8-0"), "t-0-8-0 is named twice"),
    "a merge with a stranger": (plan("MERGE", "t-0-8-0", "other-8-16-0"), "no open segment 'other-8-16-0'"),
    "a segment that never was": (plan("ROLL", "t-0-4-7"), "no open segment 't-0-4-7'"),
    "an action that is none": (plan(99, "t-0-8-0"), "unknown value 99; known here are split, merge, move, roll"),
    "no action": (plan(0, "t-0-8-0"), "has no value"),
    "a topic that is none": (plan("ROLL", "t-0-8-0", topic="nobody"), "no topic default/nobody"),
}


@pytest.mark.parametrize("what", PLANS)
@virtual_time
async def test_an_impossible_plan_is_refused_with_a_reason(what: str) -> None:
    request, words = PLANS[what]

    async with open_two_segments() as two_segments:
        before = two_segments.layout.version
        with pytest.raises(RpcAborted, match=words):
            await two_segments.leader.call("ChangeSegments", request)
        assert two_segments.layout.version == before


@virtual_time
async def test_segments_that_are_no_neighbours_are_not_merged() -> None:
    async with open_two_segments(min_segments=4) as two_segments:
        with pytest.raises(RpcAborted, match=r"only adjacent ranges can be merged: \[0, 4\), \[8, 12\)"):
            await two_segments.leader.call("ChangeSegments", plan("MERGE", "t-0-4-0", "t-8-12-2"))


@virtual_time
async def test_a_segment_of_one_partition_is_not_split() -> None:
    async with open_two_segments(partitions=2) as two_segments:
        with pytest.raises(RpcAborted, match=r"\[0, 1\) is a single partition: it cannot be split"):
            await two_segments.leader.call("ChangeSegments", plan("SPLIT", "t-0-1-0"))


@virtual_time
async def test_a_topic_is_trimmed_before_a_time_that_a_calendar_has() -> None:
    async with open_two_segments() as two_segments:
        for before, words in ((-(1 << 63), "since 1970"), ((1 << 63) - 1, "has not")):
            with pytest.raises(RpcAborted, match=words):
                await two_segments.leader.call("TrimTopic", admin_pb2.TrimTopicRequest(topic="t", before=before))


@virtual_time
async def test_the_last_broker_is_not_drained() -> None:
    async with open_two_segments(brokers=1) as two_segments:
        with pytest.raises(RpcAborted, match="cannot drain b0: no other broker is available"):
            await two_segments.leader.call("DrainBroker", admin_pb2.DrainBrokerRequest(broker="b0"))
        with pytest.raises(RpcAborted, match=r"no broker nobody \(known brokers: b0\)"):
            await two_segments.leader.call("DrainBroker", admin_pb2.DrainBrokerRequest(broker="nobody"))


@virtual_time
async def test_only_a_broker_that_drains_is_brought_back() -> None:
    async with open_two_segments() as two_segments:
        undrain = admin_pb2.UndrainBrokerRequest(broker="b1")
        with pytest.raises(RpcAborted, match="b1 does not drain"):
            await two_segments.leader.call("UndrainBroker", undrain)
        await two_segments.leader.call("DrainBroker", admin_pb2.DrainBrokerRequest(broker="b1"))
        await two_segments.leader.call("UndrainBroker", undrain)
        assert two_segments.leader.platform.restarted == ["b1"]
        with pytest.raises(RpcAborted, match="no broker nobody"):
            await two_segments.leader.call("UndrainBroker", admin_pb2.UndrainBrokerRequest(broker="nobody"))
        await wait_until(two_segments.open)


@virtual_time
async def test_a_drain_is_confirmed_by_the_broker_from_which_another_leader_learns_it() -> None:
    async with open_two_segments() as two_segments:
        brokers = {it.replica.broker: it for it in two_segments.leader.fleet.brokers.values()}
        await two_segments.leader.call("DrainBroker", admin_pb2.DrainBrokerRequest(broker="b1"))
        assert brokers["b1"].draining
        brokers["b2"].answers = False
        with pytest.raises(RpcAborted, match=r"b2 has not confirmed that it drains.* after a leader change"):
            await two_segments.leader.call("DrainBroker", admin_pb2.DrainBrokerRequest(broker="b2"))


@virtual_time
async def test_the_last_broker_that_is_not_draining_is_not_drained_even_when_it_is_empty() -> None:
    async with open_two_segments() as two_segments:
        for name in ("b0", "b1"):
            await two_segments.leader.call("DrainBroker", admin_pb2.DrainBrokerRequest(broker=name))
        with pytest.raises(RpcAborted, match="Start another broker first"):
            await two_segments.leader.call("DrainBroker", admin_pb2.DrainBrokerRequest(broker="b2"))
        await wait_until(two_segments.open)


def report_of(**fields: str) -> brokers_pb2.BrokerReport:
    return brokers_pb2.BrokerReport(protocol=PROTOCOL, **{"broker": "b", "incarnation": "x", "address": "h:1"} | fields)  # type: ignore[arg-type]


REPORTS = {
    "no name": brokers_pb2.BrokerReport(protocol=PROTOCOL, incarnation="x", address="h:1"),
    "no incarnation": brokers_pb2.BrokerReport(protocol=PROTOCOL, broker="b", address="h:1"),
    "no address": brokers_pb2.BrokerReport(protocol=PROTOCOL, broker="b", incarnation="x"),
    "nothing at all": brokers_pb2.BrokerReport(),
    "a protocol of the future": brokers_pb2.BrokerReport(protocol=99, broker="b", incarnation="x", address="h:1"),
    "a name that clears the terminal": report_of(broker="\x1b[2J"),
    "a name without end": report_of(broker="b" * 10_000_000),
    "an incarnation without end": report_of(incarnation="x" * 10_000_000),
    "a node that is no text": report_of(node="\x00"),
    "a zone without end": report_of(zone="z" * 10_000_000),
    "an address of two lines": report_of(address="h:1\nh:2"),
    "an address for Kafka clients without end": report_of(kafka_address="k" * 10_000_000),
}


@pytest.mark.parametrize("what", REPORTS)
@virtual_time
async def test_a_report_that_cannot_be_one_is_refused(what: str) -> None:
    async with open_two_segments() as two_segments:
        with pytest.raises(RpcAborted, match=r"a report needs|protocol version|printable characters") as caught:
            await two_segments.leader.call("Report", REPORTS[what])
        assert len(str(caught.value)) <= 1000 and str(caught.value).isprintable()
        assert len(two_segments.leader.registry.all()) == 3


@pytest.mark.parametrize("fields", [{"group": "\x1b[2J"}, {"group": "g" * 129}, {"group": "g", "member": "\x1b[2J"}])
@virtual_time
async def test_names_of_groups_and_members_are_printable_and_short(fields: dict[str, str]) -> None:
    async with open_two_segments() as two_segments:
        with pytest.raises(RpcAborted, match="printable characters"):
            await two_segments.leader.call("JoinGroup", groups_pb2.JoinGroupRequest(topic="t", **fields))  # type: ignore[arg-type]


@virtual_time
async def test_an_error_quotes_little_of_what_was_sent() -> None:
    async with open_two_segments() as two_segments:
        with pytest.raises(RpcAborted, match="a topic's name must be") as caught:
            await two_segments.leader.call("Locate", pb.LocateRequest(topic="\x1b" * 10_000_000))
        assert len(str(caught.value)) <= 1000 and str(caught.value).isprintable()


@virtual_time
async def test_a_fenced_broker_is_ordered_to_exit() -> None:
    async with open_two_segments() as two_segments:
        victim = two_segments.primary()
        victim.living = False
        two_segments.platform.terminated[victim.replica.incarnation] = "its process ended"
        await wait_until(lambda: two_segments.open() and two_segments.primary() is not victim)
        with pytest.raises(RpcAborted, match=r"was declared gone \(its process ended\)\. Stop this process"):
            await two_segments.leader.call("Report", victim.report())
        known = two_segments.known(victim)
        assert known is not None and known.gone is not None, "a report does not bring it back"


@virtual_time
async def test_reports_of_an_unknown_broker_do_not_affect_other_segments() -> None:
    async with open_two_segments() as two_segments:
        segment = two_segments.layout.segments[0]
        stranger = brokers_pb2.BrokerReport(protocol=PROTOCOL, broker="stranger", incarnation="s", address="h:1")
        stranger.status.segments.append(
            segment_report(
                two_segments, end=HUGE, watermark=HUGE, messages=10**12, state=pb.SegmentReport.OPEN, primary=True
            )
        )
        stranger.status.segments.append(pb.SegmentReport(topic="default/never", segment="never-0-1-0", uid="u"))
        stranger.status.segments.append(pb.SegmentReport())
        stranger.unresponsive.extend(["nobody", ""])
        for _ in range(3):
            await two_segments.leader.call("Report", stranger)
        leader = two_segments.leader.topics[TOPIC].reconciler
        assert leader is not None
        assert leader.watermarks.get(segment.name, 0) == 0
        load = leader.load.totals.get(segment.name)
        assert load is None or load.messages == 0


def segment_report(two_segments: TwoSegmentTopic, **what: object) -> pb.SegmentReport:
    segment = two_segments.layout.segments[0]
    return pb.SegmentReport(topic=TOPIC, uid=two_segments.layout.uid, segment=segment.name, **what)  # type: ignore[arg-type]


INVALID_COUNTERS = {
    "counters beyond all numbers": {"messages": HUGE, "bytes": HUGE, "batches": HUGE},
    "a rate beyond all machines": {"messages": 10**17, "bytes": 10**17, "batches": 10},
    "a histogram without end": {"messages": 5, "bytes": 5, "batches": 5, "histogram": [1] * 5000},
    "slices beyond all numbers": {"messages": 5, "bytes": 5, "batches": 5, "histogram": [HUGE] * 8},
}


@pytest.mark.parametrize("what", INVALID_COUNTERS)
@virtual_time
async def test_invalid_counters_are_ignored_and_scale_nothing(what: str) -> None:
    async with open_two_segments() as two_segments:
        segment, broker = two_segments.layout.segments[0], two_segments.primary()
        leader = two_segments.leader.topics[TOPIC].reconciler
        assert leader is not None
        two_segments.only_ours()
        report = FakeBroker.report(replace(broker, held={}))
        for counters in ({"messages": 1, "bytes": 1, "batches": 1}, INVALID_COUNTERS[what], INVALID_COUNTERS[what]):
            del report.status.segments[:]
            report.status.segments.append(segment_report(two_segments, **counters, end=5, watermark=HUGE))
            await two_segments.leader.call("Report", report)
            await asyncio.sleep(0.02)
        assert segment.name in leader.load.invalid_reports
        assert leader.load.totals[segment.name].messages <= 1
        assert leader.watermarks.get(segment.name, 0) <= 5, "nothing can be durable that is not there"
        assert not [d for d in two_segments.leader.decisions.recent if d.action in ("split", "roll")]
        del report.status.segments[:]
        report.status.segments.append(segment_report(two_segments, messages=9, bytes=9, batches=9))
        await two_segments.leader.call("Report", report)
        assert segment.name not in leader.load.invalid_reports and leader.load.totals[segment.name].messages == 9


POLICIES = {
    "a target of 0": {"target_messages_per_second": 0, "target_bytes_per_second": 0},
    "min above max": {"min_segments": 4, "max_segments": 2},
    "max of 0": {"max_segments": 0},
    "more replicas than brokers": {"replicas": 7},
    "no delay at all": {"split_after": 0, "merge_after": 0},
    "rolls without end": {"roll_bytes": 0, "roll_age": 0},
}


@pytest.mark.parametrize("what", POLICIES)
@virtual_time
async def test_a_policy_that_cannot_be_met_stops_nothing(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Manifests with these policies are rejected. The test applies them without a manifest."""

    two_segments = TwoSegmentTopic()
    two_segments.platform.add_topic("default/bad", **POLICIES[what])
    failed: list[Exception] = []
    monkeypatch.setattr(two_segments.leader.loop, "_suspend", lambda managed, error: failed.append(error))
    async with running_leader(two_segments.leader):
        await wait_until(two_segments.open)
        await wait_until(
            lambda: two_segments.leader.topics["default/bad"].layout is not None, what="the other topic is managed too"
        )
        await two_segments.leader.call("ListTopics", admin_pb2.ListTopicsRequest())
        await two_segments.leader.call("ChangeSegments", plan("SPLIT", "t-0-8-0"))
        await wait_until(lambda: len(two_segments.layout.segments) == 3 and two_segments.open())
        assert not failed


@virtual_time
async def test_more_replicas_than_brokers_are_reported() -> None:
    async with open_two_segments(replicas=5) as two_segments:
        assert (
            "spec.replicas is 5, but there are brokers for 3"
            in two_segments.leader.condition(TOPIC, "Balanced").message
        )


BROKEN: dict[str, Callable[[pytest.MonkeyPatch, LeaderInMemory], None]] = {
    "its step": lambda patch, leader: _break(patch, leader, "step"),
    "its decisions": lambda patch, leader: _break(patch, leader, "_change"),
    "its loads": lambda patch, leader: _break_load(patch, leader),
    "its size": lambda patch, leader: leader.platform.add_topic("default/bad", partitions=1, min_segments=50),
}


@pytest.mark.parametrize("what", BROKEN)
@virtual_time
async def test_one_topic_that_fails_again_and_again_leaves_all_others_alone(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    two_segments = TwoSegmentTopic()
    loop, topics = two_segments.leader.loop, two_segments.leader.topics
    async with running_leader(two_segments.leader):
        await wait_until(two_segments.open)
        if what != "its size":
            two_segments.platform.add_topic("default/bad")
            await wait_until(lambda: two_segments.open("default/bad"))
        BROKEN[what](monkeypatch, two_segments.leader)
        loop.platform_changed()
        await wait_until(lambda: "default/bad" in topics, what="it is known")
        await wait_until(
            lambda: "reconciling the topic failed" in (topics["default/bad"].problem or ""),
            what="its problem is reported",
        )
        listed = await two_segments.leader.call("ListTopics", admin_pb2.ListTopicsRequest())
        assert isinstance(listed, admin_pb2.TopicList) and len(listed.topics) == 2
        await two_segments.leader.call("ChangeSegments", plan("SPLIT", "t-0-8-0"))
        await wait_until(
            lambda: len(two_segments.layout.segments) == 3 and two_segments.open(),
            what="the other topic is managed as before",
        )
        victim = two_segments.primary()
        victim.living = False
        two_segments.platform.terminated[victim.replica.incarnation] = "killed"
        await wait_until(lambda: two_segments.open() and two_segments.primary() is not victim, what="and fails over")


def _break(patch: pytest.MonkeyPatch, leader: LeaderInMemory, method: str) -> None:
    kind = type(leader.topics[TOPIC].reconciler)
    real = getattr(kind, method)

    def fails(self: object, *args: object) -> object:
        if self.topic.name == "default/bad":  # type: ignore[attr-defined]
            raise RuntimeError("broken by the test")
        return real(self, *args)

    patch.setattr(kind, method, fails)


def _break_load(patch: pytest.MonkeyPatch, leader: LeaderInMemory) -> None:
    bad = leader.topics["default/bad"].reconciler
    assert bad is not None and bad.layout is not None
    bad.load.segments[bad.layout.segments[0].name] = object()  # type: ignore[assignment]
