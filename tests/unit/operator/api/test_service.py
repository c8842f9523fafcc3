"""The leader's service over fake brokers: filer errors, unreachability reports, stale segments, separated pairs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from smq_core.errors import StoreStateUnknown, StoreUnavailable
from smq_core.model.entities import Phase
from smq_operator.brokers import connectivity
from smq_operator.brokers.registry import SUSPECT_AFTER_US
from smq_operator.cleanup import stale_segments
from smq_proto.v1 import admin_pb2, brokers_pb2, groups_pb2, topics_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_storage.catalog import group_positions as group_files
from smq_storage.catalog.topics import read_current
from smq_storage.object_store.store import EtagMismatch, ObjectExists, Store, open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


# Messages of each segment.
ROWS = 50


class OpenTopic:
    def __init__(self, segments: int = 1, brokers: int = 3) -> None:
        self.store: Store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        self.platform = FakePlatform(brokers)
        for number in range(brokers):
            self.fleet.add(f"b{number}")
        self.platform.add_topic(TOPIC, min_segments=segments)

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.platform, self.fleet, self.store)


def segments(leader: LeaderInMemory) -> list[str]:
    """The open segments, when all are open and held."""
    managed = leader.topics.get(TOPIC)
    layout = managed.layout if managed is not None else None
    if layout is None or any(s.phase is not Phase.OPEN or s.successors for s in layout.segments):
        return []
    held = all(
        (layout.uid, s.name) in leader.fleet.brokers[r.incarnation].held for s in layout.segments for r in s.replicas
    )
    return [s.name for s in layout.segments] if held else []


@asynccontextmanager
async def open_topic(**open_topic_setup: int) -> AsyncIterator[tuple[OpenTopic, LeaderInMemory]]:
    made = OpenTopic(**open_topic_setup)
    leader = made.leader()
    async with running_leader(leader):
        await wait_until(lambda: segments(leader), what="the topic is open")
        layout = leader.topics[TOPIC].layout
        assert layout is not None
        for segment in layout.segments:
            made.fleet.write(layout.uid, segment, ROWS)
        yield made, leader


async def join(leader: LeaderInMemory, member: str = "a", generation: int = 0) -> groups_pb2.GroupAssignment:
    reply = await leader.call(
        "JoinGroup",
        groups_pb2.JoinGroupRequest(topic="t", group="g", member=member, start="EARLIEST", generation=generation),
    )
    assert isinstance(reply, groups_pb2.GroupAssignment)
    return reply


async def commit(leader: LeaderInMemory, assignment: groups_pb2.GroupAssignment, **positions: int) -> None:
    await leader.call(
        "CommitPositions",
        groups_pb2.CommitPositionsRequest(
            topic="t",
            group="g",
            member=assignment.member,
            generation=assignment.generation,
            positions=positions,
            epoch=assignment.epoch,
        ),
    )


class FailingGroupPuts:
    """Breaks the PUTs of groups' files: ``how`` is ``lost`` (nothing happens) or ``answer_lost`` (it is stored).

    With ``blind`` they cannot be read either.
    """

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, how: str, times: int) -> None:
        self.left, self.puts, self.blind = times, 0, False
        get = store.get

        def failing_get(path: str) -> object:
            if self.blind and "_groups" in path:
                raise StoreUnavailable("broken by the test")
            return get(path)

        monkeypatch.setattr(store, "get", failing_get)
        for method in ("put_new", "put_if"):
            monkeypatch.setattr(store, method, self._breaking(getattr(store, method), how))

    def _breaking(self, real: Callable[..., str], how: str) -> Callable[..., str]:
        def put(path: str, *args: object) -> str:
            if "_groups" not in path:
                return real(path, *args)
            self.puts += 1
            if self.left <= 0:
                return real(path, *args)
            self.left -= 1
            if how == "answer_lost":
                try:
                    real(path, *args)
                except (ObjectExists, EtagMismatch):
                    raise
            raise StoreStateUnknown("broken by the test")

        return put


@pytest.mark.parametrize("how", ["lost", "answer_lost"])
@virtual_time
async def test_a_commit_whose_put_failed_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch, how):
    async with open_topic() as (open_topic_setup, leader):
        (name,) = segments(leader)
        assignment = await join(leader)
        FailingGroupPuts(open_topic_setup.store, monkeypatch, how, times=1)
        await commit(leader, assignment, **{name: 3})
        uid = leader.topics[TOPIC].topic.uid  # type: ignore[union-attr]
        found, _ = group_files.read_positions(open_topic_setup.store, TOPIC, uid, "g")
        assert found.positions == {name: 3}
        await commit(leader, assignment, **{name: 4})


@virtual_time
async def test_a_commit_is_refused_while_the_filer_is_away_and_written_when_it_is_back(monkeypatch: pytest.MonkeyPatch):
    async with open_topic() as (open_topic_setup, leader):
        (name,) = segments(leader)
        assignment = await join(leader)
        broken = FailingGroupPuts(open_topic_setup.store, monkeypatch, "lost", times=10_000)
        with pytest.raises(RpcAborted, match="not written so far"):
            await commit(leader, assignment, **{name: 3})
        assert (await join(leader, generation=assignment.generation)).positions[name] == 0
        broken.left = 0
        group = leader.groups.loaded(TOPIC, "g")
        assert group is not None
        await wait_until(lambda: group.positions == {name: 3}, what="it is written without being asked again")


@virtual_time
async def test_a_commit_of_unknown_state_is_recognised_later(monkeypatch: pytest.MonkeyPatch):
    async with open_topic() as (open_topic_setup, leader):
        (name,) = segments(leader)
        assignment = await join(leader)
        broken = FailingGroupPuts(open_topic_setup.store, monkeypatch, "answer_lost", times=1)
        broken.blind = True
        with pytest.raises(RpcAborted, match="state unknown"):
            await commit(leader, assignment, **{name: 3})
        broken.blind = False
        group = leader.groups.loaded(TOPIC, "g")
        assert group is not None
        await wait_until(lambda: group.positions == {name: 3})
        assert leader.groups.loaded(TOPIC, "g") is group, "it is not taken for another leader's"


@virtual_time
async def test_a_member_with_a_newer_generation_makes_the_leader_reload_the_group():
    async with open_topic() as (open_topic_setup, leader):
        (name,) = segments(leader)
        await join(leader)
        second = open_topic_setup.leader()
        async with running_leader(second):
            await wait_until(lambda: segments(second))
            new = await join(second)
            await commit(second, new, **{name: 7})
        back = await join(leader, generation=new.generation)
        assert back.positions[name] == 7


@virtual_time
async def test_another_leader_takes_a_group_over():
    async with open_topic() as (open_topic_setup, leader):
        (name,) = segments(leader)
        assignment = await join(leader)
        await commit(leader, assignment, **{name: 3})
        second = open_topic_setup.leader()
        async with running_leader(second):
            await wait_until(lambda: segments(second))
            new = await join(second)
            assert new.generation > assignment.generation + 100 and new.positions[name] == 3
            with pytest.raises(RpcAborted, match="another leader"):
                await commit(leader, assignment, **{name: 5})
            await commit(second, new, **{name: 7})
            back = await join(leader, generation=new.generation)
            assert back.positions[name] == 7, "the first one loads it again"


@virtual_time
async def test_commits_that_come_together_share_one_put(monkeypatch: pytest.MonkeyPatch):
    async with open_topic() as (open_topic_setup, leader):
        (name,) = segments(leader)
        assignment = await join(leader)
        counted = FailingGroupPuts(open_topic_setup.store, monkeypatch, "lost", times=0)
        await asyncio.gather(*(commit(leader, assignment, **{name: n}) for n in range(1, 51)))
        assert counted.puts < 10


@virtual_time
async def test_a_deleted_topics_group_is_gone_with_it():
    async with open_topic() as (open_topic_setup, leader):
        (name,) = segments(leader)
        assignment = await join(leader)
        await commit(leader, assignment, **{name: 3})
        await leader.call("DeleteTopic", admin_pb2.DeleteTopicRequest(topic="t"))
        with pytest.raises(RpcAborted, match="no topic"):
            await join(leader)
        open_topic_setup.platform.add_topic(TOPIC)
        leader.loop.platform_changed()
        await wait_until(lambda: segments(leader))
        assert dict((await join(leader)).positions) == {name: 0}, "the same name, another topic"


@virtual_time
async def test_segments_of_a_deleted_topic_are_sealed_where_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stale_segments, "CHECK_AFTER_US", 0)

    async with open_topic() as (open_topic_setup, leader):
        held = [machine for broker in open_topic_setup.fleet.brokers.values() for machine in broker.held.values()]
        assert held
        await leader.call("DeleteTopic", admin_pb2.DeleteTopicRequest(topic="t"))
        await wait_until(lambda: all(machine.outcome is not None for machine in held))


@virtual_time
async def test_segments_of_a_topic_that_is_only_absent_now_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stale_segments, "CHECK_AFTER_US", 0)
    monkeypatch.setattr(stale_segments, "RECHECK_INTERVAL_US", 0)

    async with open_topic() as (open_topic_setup, leader):
        held = [machine for broker in open_topic_setup.fleet.brokers.values() for machine in broker.held.values()]
        desired = open_topic_setup.platform.topics.pop(TOPIC)
        leader.loop.platform_changed()
        await wait_until(lambda: TOPIC not in leader.topics)
        looked = []

        def counted(*args: object) -> object:
            looked.append(args)
            return read_current(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(stale_segments, "read_current", counted)
        await wait_until(lambda: len(looked) > 10, what="the leader polls repeatedly")
        assert not [m for m in held if m.outcome is not None]
        open_topic_setup.platform.topics[TOPIC] = desired
        leader.loop.platform_changed()
        await wait_until(lambda: segments(leader))


@virtual_time
async def test_a_reported_failure_is_verified_by_a_liveness_probe(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("smq_operator.brokers.liveness.PROBE_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr("smq_operator.brokers.liveness.PROBE_INTERVAL_SECONDS", 0.05)

    async with open_topic() as (open_topic_setup, leader):
        victim = next(iter(open_topic_setup.fleet.brokers.values()))
        broker = leader.registry.get(victim.replica.incarnation)
        assert broker is not None
        await leader.call(
            "ReportUnreachable",
            topics_pb2.ReportUnreachableRequest(incarnation=victim.replica.incarnation, error="no answer"),
        )
        await wait_until(lambda: leader.tasks.idle)
        assert not broker.suspected, "it answered"
        victim.answers = False
        await leader.call(
            "ReportUnreachable",
            topics_pb2.ReportUnreachableRequest(incarnation=victim.replica.incarnation, error="no answer"),
        )
        await wait_until(lambda: broker.suspected)
        layout = leader.topics[TOPIC].layout
        assert layout is not None
        victim.answers = True
        await wait_until(lambda: not broker.suspected, "it is called until it answers")
        assert broker.report_timeout_us > SUSPECT_AFTER_US, "next time it is waited for longer"


@virtual_time
async def test_brokers_that_cannot_reach_each_other_get_no_common_segments(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connectivity, "UNREACHABLE_AFTER_US", 50_000)

    async with open_topic() as (open_topic_setup, leader):
        layout = leader.topics[TOPIC].layout
        assert layout is not None
        primary, follower = layout.segments[0].replicas
        complaint = open_topic_setup.fleet.brokers[primary.incarnation].report()
        complaint.unresponsive.append(follower.incarnation)

        def apart() -> bool:
            now = leader.topics[TOPIC].layout
            assert now is not None
            pairs = [{r.incarnation for r in s.replicas} for s in now.segments if not s.successors]
            return {primary.incarnation, follower.incarnation} not in pairs

        async def complains() -> None:
            while True:
                await leader.call("Report", complaint)
                await asyncio.sleep(0.01)

        # The fleet's own reports in between say that all is well.
        open_topic_setup.fleet.brokers[primary.incarnation].report = lambda: complaint  # type: ignore[method-assign]
        task = asyncio.create_task(complains())
        await wait_until(apart)
        task.cancel()


@virtual_time
async def test_nothing_is_answered_before_this_leader_leads():
    open_topic_setup = OpenTopic()
    leader = open_topic_setup.leader()
    leader.parts.readiness.not_ready_reason = "the filer is away"
    with pytest.raises(RpcAborted, match="not ready: the filer is away"):
        await leader.call("Locate", pb.LocateRequest(topic="t"))
    leader.parts.readiness.leader_address = "other:7070"
    with pytest.raises(RpcAborted, match="connect to other:7070"):
        await leader.call("Locate", pb.LocateRequest(topic="t"))


@virtual_time
async def test_may_leave_is_not_said_before_every_layout_is_known():
    open_topic_setup = OpenTopic()
    leader = open_topic_setup.leader()
    broker = next(iter(open_topic_setup.fleet.brokers.values()))
    broker.draining = True
    reply = await leader.call("Report", broker.report())
    assert isinstance(reply, brokers_pb2.BrokerReportReply) and not reply.may_leave, "no round was made yet"
    async with running_leader(leader):
        await wait_until(lambda: segments(leader) and not leader.topic_deletions.blocks_leaving(""))
        reply = await leader.call("Report", broker.report())
        assert isinstance(reply, brokers_pb2.BrokerReportReply) and reply.may_leave


@virtual_time
async def test_brokers_may_leave_although_a_topic_has_no_layout_yet():
    """All brokers shut down before one hosts the first segments. No request waits in that case."""

    open_topic_setup = OpenTopic()
    leader = open_topic_setup.leader()
    for broker in open_topic_setup.fleet.brokers.values():
        broker.draining = True
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics.all_layouts_known, what="the filer is read")
        assert leader.topics[TOPIC].layout is None, "there is nobody to place it on"
        await wait_until(lambda: not leader.topic_deletions.blocks_leaving(""), what="what is to be ended is known")
        for broker in open_topic_setup.fleet.brokers.values():
            reply = await leader.call("Report", broker.report())
            assert isinstance(reply, brokers_pb2.BrokerReportReply) and reply.may_leave
        open_topic_setup.fleet.add("new")
        open_topic_setup.platform.count = 1
        await wait_until(lambda: leader.topics[TOPIC].layout is not None, what="a broker that comes gets it")


@virtual_time
async def test_nobody_may_leave_while_a_layout_cannot_be_read(monkeypatch: pytest.MonkeyPatch):
    open_topic_setup = OpenTopic()
    leader = open_topic_setup.leader()
    broker = next(iter(open_topic_setup.fleet.brokers.values()))
    broker.draining = True
    get = open_topic_setup.store.get

    def away(path: str) -> object:
        if path.endswith("_layout.json"):
            raise StoreUnavailable("broken by the test")
        return get(path)

    monkeypatch.setattr(open_topic_setup.store, "get", away)
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].reconciler is not None)
        reply = await leader.call("Report", broker.report())
        assert isinstance(reply, brokers_pb2.BrokerReportReply) and not reply.may_leave
        monkeypatch.setattr(open_topic_setup.store, "get", get)
        await wait_until(lambda: segments(leader) and not leader.topic_deletions.blocks_leaving(""))
        reply = await leader.call("Report", broker.report())
        assert isinstance(reply, brokers_pb2.BrokerReportReply) and reply.may_leave


@virtual_time
async def test_a_topic_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch):
    async with open_topic() as (open_topic_setup, leader):
        open_topic_setup.platform.add_topic("default/bad")
        await wait_until(lambda: "default/bad" in leader.topics and leader.topics["default/bad"].layout)

        def fails(*_: object) -> None:
            raise RuntimeError("broken by the test")

        bad = leader.topics["default/bad"].reconciler
        assert bad is not None
        monkeypatch.setattr(type(bad), "_index", _only(bad, fails, type(bad)._index))
        await wait_until(lambda: leader.topics["default/bad"].reconciler is not bad)
        victim = leader.topics[TOPIC].layout.segments[0].primary  # type: ignore[union-attr]
        open_topic_setup.fleet.brokers[victim.incarnation].living = False
        open_topic_setup.platform.terminated[victim.incarnation] = "killed"
        await wait_until(
            lambda: segments(leader) and segments(leader)[0] != "t-0-16-0", what="t fails over all the same"
        )
        await wait_until(lambda: leader.topics["default/bad"].layout, what="the topic bad is managed again")


def _only(broken: object, fails: Callable[..., None], real: Callable[..., object]) -> Callable[..., object]:
    def method(self: object, *args: object) -> object:
        return fails() if self is broken else real(self, *args)

    return method


@virtual_time
async def test_a_rollout_waits_for_a_drain_but_not_for_a_termination_proof():
    """Nobody may ever see the end of a broker that left in order: it holds nothing, so the next one may go."""

    async with open_topic() as (open_topic_setup, leader):
        layout = leader.topics[TOPIC].layout
        assert layout is not None
        leaving = open_topic_setup.fleet.brokers[layout.segments[0].primary.incarnation]
        other = next(b for b in open_topic_setup.fleet.brokers.values() if b is not leaving)

        async def others_drain() -> bool:
            reply = await leader.call("Report", other.report())
            assert isinstance(reply, brokers_pb2.BrokerReportReply)
            return reply.others_drain

        assert not await others_drain()
        leaving.draining = True
        await leader.call("Report", leaving.report())
        assert await others_drain(), "it holds a segment yet"
        incarnation = leaving.replica.incarnation
        await wait_until(
            lambda: not leader.parts.assignments.segments_of(incarnation), what="the broker has no assigned segments"
        )
        leaving.answers = False
        assert not await others_drain()
        assert leader.registry.get(incarnation).gone is None  # type: ignore[union-attr]


@virtual_time
async def test_a_broker_that_serves_kafka_clients_learns_where_the_others_do():
    async with open_topic() as (open_topic_setup, leader):
        first, second, third = open_topic_setup.fleet.brokers.values()

        async def listeners(broker, address: str) -> dict[str, str]:
            report = broker.report()
            report.kafka_address = address
            reply = await leader.call("Report", report)
            assert isinstance(reply, brokers_pb2.BrokerReportReply)
            return {it.incarnation: it.address for it in reply.kafka_listeners}

        names = [it.replica.incarnation for it in (first, second)]
        await listeners(first, "a:9092")
        assert await listeners(second, "b:9093") == dict(zip(names, ("a:9092", "b:9093"), strict=True))
        assert await listeners(third, "") == {}
        await listeners(first, "")
        assert await listeners(second, "b:9093") == {names[1]: "b:9093"}
