"""What nobody should ask of an elastic leader: refused or ignored with a reason, and the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from smq_core.model import Layout, Phase
from smq_operator.registry import Broker
from smq_operator.service_people import conditions
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from smq_storage.store import open_store
from support.fake_fleet import FakeBroker, FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, Refused, leading, until

TOPIC = "default/t"
HUGE = 2**64 - 1


class Scene:
    """A leader with a topic of two segments, t-0-8-0 and t-8-16-1."""

    def __init__(self, brokers: int = 3, **spec: object) -> None:
        store = open_store("memory://")
        self.fleet, self.world = FakeFleet(store), FakeWorld(brokers)
        for number in range(brokers):
            self.fleet.add(f"b{number}")
        self.world.wish(TOPIC, **({"min_segments": 2} | spec))
        self.leader = LeaderInMemory(self.world, self.fleet, store)

    @property
    def layout(self) -> Layout:
        found = self.leader.loop.topics[TOPIC].layout
        assert found is not None
        return found

    def open(self, topic: str = TOPIC) -> bool:
        run = self.leader.loop.topics.get(topic)
        layout = run.layout if run is not None else None
        return layout is not None and all(s.phase is Phase.OPEN and not s.successors for s in layout.segments)

    def primary(self, number: int = 0) -> FakeBroker:
        return self.fleet.brokers[self.layout.segments[number].primary.incarnation]

    def known(self, broker: FakeBroker) -> Broker | None:
        return self.leader.registry.get(broker.replica.incarnation)

    def texts(self) -> dict[str, str]:
        return {c.type: c.message for c in conditions(self.leader.loop.topics[TOPIC])}

    def only_ours(self) -> None:
        """From now on brokers report what the test says, and nothing else."""
        for broker in self.fleet.brokers.values():
            broker.report = lambda it=broker: FakeBroker.report(replace(it, held={}))  # type: ignore[method-assign]


def run(work: Callable[[Scene], Awaitable[None]], **scene: object) -> None:
    async def main() -> None:
        made = Scene(**scene)  # type: ignore[arg-type]
        async with leading(made.leader):
            await until(made.open, what="the topic is open")
            await work(made)
            rounds = made.leader.loop.rounds
            made.leader.loop.kick()
            await until(lambda: made.leader.loop.rounds > rounds, what="the loop goes on")
            await until(made.open, what="and so does the topic")

    asyncio.run(main())


def plan(action: str, *segments: str, at: tuple[int, ...] = (), topic: str = "t") -> lpb.PlanRequest:
    return lpb.PlanRequest(topic=topic, action=action, segments=segments, boundaries=at)


PLANS = {
    "before the range": (plan("split", "t-8-16-1", at=(3,)), r"inside \[8, 16\), between 9 and 15"),
    "after the range": (plan("split", "t-0-8-0", at=(99,)), r"inside \[0, 8\), between 1 and 7"),
    "at its start": (plan("split", "t-8-16-1", at=(8,)), "between 9 and 15"),
    "at its end": (plan("split", "t-0-8-0", at=(8,)), "between 1 and 7"),
    "one right, one wrong": (plan("split", "t-0-8-0", at=(4, 4_000_000_000)), "between 1 and 7"),
    "a split of two": (plan("split", "t-0-8-0", "t-8-16-1"), "exactly one segment"),
    "a split of nothing": (plan("split"), "exactly one segment"),
    "a merge of one": (plan("merge", "t-0-8-0"), "two or more"),
    "a merge with itself": (plan("merge", "t-0-8-0", "t-0-8-0"), "t-0-8-0 is named twice"),
    "a merge with a stranger": (plan("merge", "t-0-8-0", "other-8-16-0"), "no open segment 'other-8-16-0'"),
    "a segment that never was": (plan("roll", "t-0-4-7"), "no open segment 't-0-4-7'"),
    "an action that is none": (plan("explode", "t-0-8-0"), "unknown action 'explode': use split"),
    "no action": (plan("", "t-0-8-0"), "unknown action"),
    "a topic that is none": (plan("roll", "t-0-8-0", topic="nobody"), "no topic default/nobody"),
}


@pytest.mark.parametrize("what", PLANS)
def test_a_plan_that_cannot_be_carried_out_is_refused_in_words(what: str) -> None:
    request, words = PLANS[what]

    async def work(scene: Scene) -> None:
        before = scene.layout.version
        with pytest.raises(Refused, match=words):
            await scene.leader.call("Plan", request)
        assert scene.layout.version == before

    run(work)


def test_segments_that_are_no_neighbours_are_not_merged() -> None:
    async def work(scene: Scene) -> None:
        with pytest.raises(Refused, match=r"only neighbouring ranges can be merged: \[0, 4\), \[8, 12\)"):
            await scene.leader.call("Plan", plan("merge", "t-0-4-0", "t-8-12-2"))

    run(work, min_segments=4)


def test_a_segment_of_one_partition_is_not_split() -> None:
    async def work(scene: Scene) -> None:
        with pytest.raises(Refused, match=r"\[0, 1\) is a single partition: it cannot be split"):
            await scene.leader.call("Plan", plan("split", "t-0-1-0"))

    run(work, partitions=2)


def test_the_last_broker_is_not_drained() -> None:
    async def work(scene: Scene) -> None:
        with pytest.raises(Refused, match="no other broker could take the segments of b0"):
            await scene.leader.call("DrainBroker", lpb.DrainBrokerRequest(broker="b0"))
        with pytest.raises(Refused, match=r"no broker nobody \(there: b0\)"):
            await scene.leader.call("DrainBroker", lpb.DrainBrokerRequest(broker="nobody"))

    run(work, brokers=1)


def test_the_last_broker_that_is_not_draining_is_not_drained_even_when_it_is_empty() -> None:
    async def work(scene: Scene) -> None:
        for name in ("b0", "b1"):
            await scene.leader.call("DrainBroker", lpb.DrainBrokerRequest(broker=name))
        with pytest.raises(Refused, match="start one first"):
            await scene.leader.call("DrainBroker", lpb.DrainBrokerRequest(broker="b2"))
        await until(scene.open)

    run(work)


REPORTS = {
    "no name": lpb.BrokerReport(protocol=1, incarnation="x", address="h:1"),
    "no incarnation": lpb.BrokerReport(protocol=1, broker="b", address="h:1"),
    "no address": lpb.BrokerReport(protocol=1, broker="b", incarnation="x"),
    "nothing at all": lpb.BrokerReport(),
    "a protocol of the future": lpb.BrokerReport(protocol=99, broker="b", incarnation="x", address="h:1"),
}


@pytest.mark.parametrize("what", REPORTS)
def test_a_report_that_cannot_be_one_is_refused(what: str) -> None:
    async def work(scene: Scene) -> None:
        with pytest.raises(Refused, match=r"a report needs|protocol version"):
            await scene.leader.call("Report", REPORTS[what])
        assert len(scene.leader.registry.all()) == 3

    run(work)


def test_a_fenced_broker_is_told_to_end() -> None:
    async def work(scene: Scene) -> None:
        victim = scene.primary()
        victim.living = False
        scene.world.dead[victim.replica.incarnation] = "its process ended"
        await until(lambda: scene.open() and scene.primary() is not victim)
        with pytest.raises(Refused, match=r"was given up \(its process ended\): stop this process"):
            await scene.leader.call("Report", victim.report())
        known = scene.known(victim)
        assert known is not None and known.gone is not None, "a report does not bring it back"

    run(work)


def test_a_broker_that_nobody_knows_says_nothing_about_others_segments() -> None:
    async def work(scene: Scene) -> None:
        segment = scene.layout.segments[0]
        stranger = lpb.BrokerReport(protocol=1, broker="stranger", incarnation="s", address="h:1")
        stranger.status.segments.append(
            segment_report(scene, end=HUGE, watermark=HUGE, messages=10**12, state="open", primary=True)
        )
        stranger.status.segments.append(pb.SegmentReport(topic="default/never", segment="never-0-1-0", uid="u"))
        stranger.status.segments.append(pb.SegmentReport())
        stranger.silent.extend(["nobody", ""])
        for _ in range(3):
            await scene.leader.call("Report", stranger)
        leader = scene.leader.loop.topics[TOPIC].leader
        assert leader is not None
        assert leader.watermarks.get(segment.name, 0) == 0
        load = leader.load.totals.get(segment.name)
        assert load is None or load.messages == 0

    run(work)


def segment_report(scene: Scene, **what: object) -> pb.SegmentReport:
    segment = scene.layout.segments[0]
    return pb.SegmentReport(topic=TOPIC, uid=scene.layout.uid, segment=segment.name, **what)  # type: ignore[arg-type]


ABSURD = {
    "counters beyond all numbers": {"messages": HUGE, "bytes": HUGE, "batches": HUGE},
    "a rate beyond all machines": {"messages": 10**17, "bytes": 10**17, "batches": 10},
    "a histogram without end": {"messages": 5, "bytes": 5, "batches": 5, "histogram": [1] * 5000},
    "slices beyond all numbers": {"messages": 5, "bytes": 5, "batches": 5, "histogram": [HUGE] * 8},
}


@pytest.mark.parametrize("what", ABSURD)
def test_absurd_counters_are_ignored_and_scale_nothing(what: str) -> None:
    async def work(scene: Scene) -> None:
        segment, broker = scene.layout.segments[0], scene.primary()
        leader = scene.leader.loop.topics[TOPIC].leader
        assert leader is not None
        scene.only_ours()
        report = FakeBroker.report(replace(broker, held={}))
        for counters in ({"messages": 1, "bytes": 1, "batches": 1}, ABSURD[what], ABSURD[what]):
            del report.status.segments[:]
            report.status.segments.append(segment_report(scene, **counters, end=5, watermark=HUGE))
            await scene.leader.call("Report", report)
            await asyncio.sleep(0.02)
        assert segment.name in leader.load.absurd
        assert leader.load.totals[segment.name].messages <= 1
        assert leader.watermarks.get(segment.name, 0) <= 5, "nothing can be durable that is not there"
        assert not [d for d in scene.leader.loop.decisions if d.action in ("split", "roll")]
        del report.status.segments[:]
        report.status.segments.append(segment_report(scene, messages=9, bytes=9, batches=9))
        await scene.leader.call("Report", report)
        assert segment.name not in leader.load.absurd and leader.load.totals[segment.name].messages == 9

    run(work)


POLICIES = {
    "a target of 0": {"target_messages_per_second": 0, "target_bytes_per_second": 0},
    "min above max": {"min_segments": 4, "max_segments": 2},
    "max of 0": {"max_segments": 0},
    "more replicas than brokers": {"replicas": 7},
    "no patience at all": {"split_after": 0, "merge_after": 0},
    "rolls without end": {"roll_bytes": 0, "roll_age": 0},
}


@pytest.mark.parametrize("what", POLICIES)
def test_a_policy_that_cannot_be_met_stops_nothing(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Manifests with these are refused; here they are wished all the same."""

    async def main() -> None:
        scene = Scene()
        scene.world.wish("default/bad", **POLICIES[what])
        failed: list[Exception] = []
        monkeypatch.setattr(scene.leader.loop, "_set_aside", lambda run, error: failed.append(error))
        async with leading(scene.leader):
            await until(scene.open)
            await until(lambda: scene.leader.loop.topics["default/bad"].layout is not None, what="it is led as well")
            await scene.leader.call("ListTopics", lpb.Empty())
            await scene.leader.call("Plan", plan("split", "t-0-8-0"))
            await until(lambda: len(scene.layout.segments) == 3 and scene.open())
            assert not failed

    asyncio.run(main())


def test_more_replicas_than_brokers_are_told() -> None:
    async def work(scene: Scene) -> None:
        assert "spec.replicas is 5, but there are brokers for 3" in scene.texts()["FewBrokers"]

    run(work, replicas=5)


BROKEN: dict[str, Callable[[pytest.MonkeyPatch, LeaderInMemory], None]] = {
    "its step": lambda patch, leader: _break(patch, leader, "step"),
    "its decisions": lambda patch, leader: _break(patch, leader, "_change"),
    "its loads": lambda patch, leader: _break_load(patch, leader),
    "its size": lambda patch, leader: leader.world.wish("default/bad", partitions=1, min_segments=50),
}


@pytest.mark.parametrize("what", BROKEN)
def test_one_topic_that_fails_again_and_again_leaves_all_others_alone(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async def main() -> None:
        scene = Scene()
        loop = scene.leader.loop
        async with leading(scene.leader):
            await until(scene.open)
            if what != "its size":
                scene.world.wish("default/bad")
                await until(lambda: scene.open("default/bad"))
            BROKEN[what](monkeypatch, scene.leader)
            loop.world_changed()
            await until(lambda: "default/bad" in loop.topics, what="it is known")
            await until(lambda: "leading it failed" in (loop.topics["default/bad"].problem or ""), what="it is told")
            listed = await scene.leader.call("ListTopics", lpb.Empty())
            assert isinstance(listed, lpb.TopicList) and len(listed.topics) == 2
            await scene.leader.call("Plan", plan("split", "t-0-8-0"))
            await until(lambda: len(scene.layout.segments) == 3 and scene.open(), what="the other is led as before")
            victim = scene.primary()
            victim.living = False
            scene.world.dead[victim.replica.incarnation] = "killed"
            await until(lambda: scene.open() and scene.primary() is not victim, what="and fails over")

    asyncio.run(main())


def _break(patch: pytest.MonkeyPatch, leader: LeaderInMemory, method: str) -> None:
    kind = type(leader.loop.topics[TOPIC].leader)
    real = getattr(kind, method)

    def fails(self: object, *args: object) -> object:
        if self.topic.name == "default/bad":  # type: ignore[attr-defined]
            raise RuntimeError("broken by the test")
        return real(self, *args)

    patch.setattr(kind, method, fails)


def _break_load(patch: pytest.MonkeyPatch, leader: LeaderInMemory) -> None:
    bad = leader.loop.topics["default/bad"].leader
    assert bad is not None and bad.layout is not None
    bad.load.segments[bad.layout.segments[0].name] = object()  # type: ignore[assignment]
