"""The leader's service over fake brokers: groups when the filer errs, complaints, orphans, pairs that are cut apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from smq_core.model import Phase
from smq_operator import deaf, orphans
from smq_operator.registry import SILENT_AFTER
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from smq_storage import groups as group_files
from smq_storage.store import AlreadyThere, Changed, Store, StoreUnavailable, open_store
from smq_storage.topics import read_current
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, Refused, leading, until

TOPIC = "default/t"


class Scene:
    def __init__(self, segments: int = 1, brokers: int = 3) -> None:
        self.store: Store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        self.world = FakeWorld(brokers)
        for number in range(brokers):
            self.fleet.add(f"b{number}")
        self.world.wish(TOPIC, min_segments=segments)

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.world, self.fleet, self.store)


def segments(leader: LeaderInMemory) -> list[str]:
    """The open segments, when all are open and held."""
    run = leader.loop.topics.get(TOPIC)
    layout = run.layout if run is not None else None
    if layout is None or any(s.phase is not Phase.OPEN or s.successors for s in layout.segments):
        return []
    held = all(
        (layout.uid, s.name) in leader.fleet.brokers[r.incarnation].held for s in layout.segments for r in s.replicas
    )
    return [s.name for s in layout.segments] if held else []


def run(work: Callable[[Scene, LeaderInMemory], Awaitable[None]], **scene: int) -> None:
    async def main() -> None:
        made = Scene(**scene)
        leader = made.leader()
        async with leading(leader):
            await until(lambda: segments(leader), what="the topic is open")
            await work(made, leader)

    asyncio.run(main())


async def join(leader: LeaderInMemory, member: str = "a", generation: int = 0) -> lpb.GroupAssignment:
    reply = await leader.call(
        "Join", lpb.JoinGroup(topic="t", group="g", member=member, start="earliest", generation=generation)
    )
    assert isinstance(reply, lpb.GroupAssignment)
    return reply


async def commit(leader: LeaderInMemory, told: lpb.GroupAssignment, **positions: int) -> None:
    await leader.call(
        "Commit",
        lpb.CommitPositions(topic="t", group="g", member=told.member, generation=told.generation, positions=positions),
    )


class Broken:
    """Breaks the PUTs of groups' files: ``how`` is ``lost`` (nothing happens) or ``unheard`` (it is stored).

    With ``blind`` they cannot be read either.
    """

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, how: str, times: int) -> None:
        self.left, self.puts, self.blind = times, 0, False
        get = store.get

        def look(path: str) -> object:
            if self.blind and "_groups" in path:
                raise StoreUnavailable("broken by the test")
            return get(path)

        monkeypatch.setattr(store, "get", look)
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
            if how == "unheard":
                try:
                    real(path, *args)
                except (AlreadyThere, Changed):
                    raise
            raise StoreUnavailable("broken by the test")

        return put


@pytest.mark.parametrize("how", ["lost", "unheard"])
def test_a_commit_whose_put_failed_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch, how):
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        (name,) = segments(leader)
        told = await join(leader)
        Broken(scene.store, monkeypatch, how, times=1)
        await commit(leader, told, **{name: 3})
        uid = leader.loop.topics[TOPIC].topic.uid  # type: ignore[union-attr]
        found = group_files.read_positions(scene.store, TOPIC, uid, "g")
        assert found is not None and found[0].positions == {name: 3}
        await commit(leader, told, **{name: 4})

    run(work)


def test_a_commit_is_refused_while_the_filer_is_away_and_written_when_it_is_back(monkeypatch: pytest.MonkeyPatch):
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        (name,) = segments(leader)
        told = await join(leader)
        broken = Broken(scene.store, monkeypatch, "lost", times=10_000)
        with pytest.raises(Refused, match="not written so far"):
            await commit(leader, told, **{name: 3})
        assert (await join(leader, generation=told.generation)).positions[name] == 0
        broken.left = 0
        group = leader.desk.groups.served(TOPIC, "g")
        assert group is not None
        await until(lambda: group.positions == {name: 3}, what="it is written without being asked again")

    run(work)


def test_a_commit_that_was_stored_while_nobody_could_tell_is_recognised_later(monkeypatch: pytest.MonkeyPatch):
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        (name,) = segments(leader)
        told = await join(leader)
        broken = Broken(scene.store, monkeypatch, "unheard", times=1)
        broken.blind = True
        with pytest.raises(Refused, match="state unknown"):
            await commit(leader, told, **{name: 3})
        broken.blind = False
        group = leader.desk.groups.served(TOPIC, "g")
        assert group is not None
        await until(lambda: group.positions == {name: 3})
        assert leader.desk.groups.served(TOPIC, "g") is group, "it is not taken for another leader's"

    run(work)


def test_a_member_that_was_elsewhere_meanwhile_makes_a_leader_look_again():
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        (name,) = segments(leader)
        await join(leader)
        second = scene.leader()
        async with leading(second):
            await until(lambda: segments(second))
            new = await join(second)
            await commit(second, new, **{name: 7})
        back = await join(leader, generation=new.generation)
        assert back.positions[name] == 7

    run(work)


def test_another_leader_takes_a_group_over():
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        (name,) = segments(leader)
        told = await join(leader)
        await commit(leader, told, **{name: 3})
        second = scene.leader()
        async with leading(second):
            await until(lambda: segments(second))
            new = await join(second)
            assert new.generation > told.generation + 100 and new.positions[name] == 3
            with pytest.raises(Refused, match="another leader"):
                await commit(leader, told, **{name: 5})
            await commit(second, new, **{name: 7})
            back = await join(leader, generation=new.generation)
            assert back.positions[name] == 7, "the first one loads it again"

    run(work)


def test_commits_that_come_together_share_one_put(monkeypatch: pytest.MonkeyPatch):
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        (name,) = segments(leader)
        told = await join(leader)
        counted = Broken(scene.store, monkeypatch, "lost", times=0)
        await asyncio.gather(*(commit(leader, told, **{name: n}) for n in range(1, 51)))
        assert counted.puts < 10

    run(work)


def test_a_deleted_topics_group_is_gone_with_it():
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        (name,) = segments(leader)
        told = await join(leader)
        await commit(leader, told, **{name: 3})
        await leader.call("DeleteTopic", pb.LocateRequest(topic="t"))
        with pytest.raises(Refused, match="no topic"):
            await join(leader)
        scene.world.wish(TOPIC)
        leader.loop.world_changed()
        await until(lambda: segments(leader))
        assert dict((await join(leader)).positions) == {name: 0}, "the same name, another topic"

    run(work)


def test_segments_of_a_deleted_topic_are_sealed_where_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(orphans, "LOOK_AFTER", 0)

    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        held = [machine for broker in scene.fleet.brokers.values() for machine in broker.held.values()]
        assert held
        await leader.call("DeleteTopic", pb.LocateRequest(topic="t"))
        await until(lambda: all(machine.outcome is not None for machine in held))

    run(work)


def test_segments_of_a_topic_that_is_only_not_wished_now_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(orphans, "LOOK_AFTER", 0)
    monkeypatch.setattr(orphans, "AGAIN_AFTER", 0)

    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        held = [machine for broker in scene.fleet.brokers.values() for machine in broker.held.values()]
        wish = scene.world.topics.pop(TOPIC)
        leader.loop.world_changed()
        await until(lambda: TOPIC not in leader.loop.topics)
        looked = []

        def counted(*args: object) -> object:
            looked.append(args)
            return read_current(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(orphans, "read_current", counted)
        await until(lambda: len(looked) > 10, what="the leader looks, again and again")
        assert not [m for m in held if m.outcome is not None]
        scene.world.topics[TOPIC] = wish
        leader.loop.world_changed()
        await until(lambda: segments(leader))

    run(work)


def test_a_complaint_is_checked_by_asking(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("smq_operator.doubts.ANSWER_WITHIN", 0.05)
    monkeypatch.setattr("smq_operator.doubts.ASK_AGAIN_AFTER", 0.05)

    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        victim = next(iter(scene.fleet.brokers.values()))
        broker = leader.registry.get(victim.replica.incarnation)
        assert broker is not None
        await leader.call("Hint", lpb.BrokerHint(incarnation=victim.replica.incarnation, what="no answer"))
        await until(lambda: not leader.loop._tasks)
        assert not broker.doubted, "it answered"
        victim.answers = False
        await leader.call("Hint", lpb.BrokerHint(incarnation=victim.replica.incarnation, what="no answer"))
        await until(lambda: broker.doubted, 2)
        layout = leader.loop.topics[TOPIC].layout
        assert layout is not None
        victim.answers = True
        await until(lambda: not broker.doubted, 2, "it is asked until it answers")
        assert broker.patience > SILENT_AFTER, "next time it is waited for longer"

    run(work)


def test_brokers_that_cannot_hear_each_other_get_no_common_segments(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deaf, "PATIENCE", 50_000)

    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        layout = leader.loop.topics[TOPIC].layout
        assert layout is not None
        primary, follower = layout.segments[0].replicas
        complaint = scene.fleet.brokers[primary.incarnation].report()
        complaint.silent.append(follower.incarnation)

        def apart() -> bool:
            now = leader.loop.topics[TOPIC].layout
            assert now is not None
            pairs = [{r.incarnation for r in s.replicas} for s in now.segments if not s.successors]
            return {primary.incarnation, follower.incarnation} not in pairs

        async def complains() -> None:
            while True:
                await leader.call("Report", complaint)
                await asyncio.sleep(0.01)

        # The fleet's own reports in between say that all is well.
        scene.fleet.brokers[primary.incarnation].report = lambda: complaint  # type: ignore[method-assign]
        task = asyncio.create_task(complains())
        await until(apart, 5)
        task.cancel()

    run(work)


def test_nothing_is_answered_before_this_leader_leads():
    async def main() -> None:
        scene = Scene()
        leader = scene.leader()
        leader.desk.not_ready = "the filer is away"
        with pytest.raises(Refused, match="not ready: the filer is away"):
            await leader.call("Locate", pb.LocateRequest(topic="t"))
        leader.desk.leader = "other:7070"
        with pytest.raises(Refused, match="ask other:7070"):
            await leader.call("Locate", pb.LocateRequest(topic="t"))

    asyncio.run(main())


def test_may_leave_is_not_said_before_every_layout_is_known():
    async def main() -> None:
        scene = Scene()
        leader = scene.leader()
        broker = next(iter(scene.fleet.brokers.values()))
        broker.draining = True
        reply = await leader.call("Report", broker.report())
        assert isinstance(reply, lpb.BrokerReportReply) and not reply.may_leave, "no round was made yet"
        async with leading(leader):
            await until(lambda: segments(leader) and not leader.desk.endings.keeps(""))
            reply = await leader.call("Report", broker.report())
            assert isinstance(reply, lpb.BrokerReportReply) and reply.may_leave

    asyncio.run(main())


def test_brokers_may_leave_although_a_topic_has_no_layout_yet():
    """All are told to end before there is one to hold its first segments: nobody waits for nothing."""

    async def main() -> None:
        scene = Scene()
        leader = scene.leader()
        for broker in scene.fleet.brokers.values():
            broker.draining = True
        async with leading(leader):
            await until(lambda: TOPIC in leader.loop.topics and leader.loop.knows_everything, what="the filer is read")
            assert leader.loop.topics[TOPIC].layout is None, "there is nobody to place it on"
            await until(lambda: not leader.desk.endings.keeps(""), what="what is to be ended is known")
            for broker in scene.fleet.brokers.values():
                reply = await leader.call("Report", broker.report())
                assert isinstance(reply, lpb.BrokerReportReply) and reply.may_leave
            scene.fleet.add("new")
            scene.world.count = 1
            await until(lambda: leader.loop.topics[TOPIC].layout is not None, what="a broker that comes gets it")

    asyncio.run(main())


def test_nobody_may_leave_while_a_layout_cannot_be_read(monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        scene = Scene()
        leader = scene.leader()
        broker = next(iter(scene.fleet.brokers.values()))
        broker.draining = True
        get = scene.store.get

        def away(path: str) -> object:
            if path.endswith("layout.json"):
                raise StoreUnavailable("broken by the test")
            return get(path)

        monkeypatch.setattr(scene.store, "get", away)
        async with leading(leader):
            await until(lambda: TOPIC in leader.loop.topics and leader.loop.topics[TOPIC].leader is not None)
            reply = await leader.call("Report", broker.report())
            assert isinstance(reply, lpb.BrokerReportReply) and not reply.may_leave
            monkeypatch.setattr(scene.store, "get", get)
            await until(lambda: segments(leader) and not leader.desk.endings.keeps(""))
            reply = await leader.call("Report", broker.report())
            assert isinstance(reply, lpb.BrokerReportReply) and reply.may_leave

    asyncio.run(main())


def test_a_topic_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch):
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        scene.world.wish("default/bad")
        await until(lambda: "default/bad" in leader.loop.topics and leader.loop.topics["default/bad"].layout)

        def fails(*_: object) -> None:
            raise RuntimeError("broken by the test")

        bad = leader.loop.topics["default/bad"].leader
        assert bad is not None
        monkeypatch.setattr(type(bad), "_open", _only(bad, fails, type(bad)._open))
        await until(lambda: leader.loop.topics["default/bad"].leader is not bad)
        victim = leader.loop.topics[TOPIC].layout.segments[0].primary  # type: ignore[union-attr]
        scene.fleet.brokers[victim.incarnation].living = False
        scene.world.dead[victim.incarnation] = "killed"
        await until(lambda: segments(leader) and segments(leader)[0] != "t-0-16-0", what="t fails over all the same")
        await until(lambda: leader.loop.topics["default/bad"].layout, what="bad is led again")

    run(work)


def _only(broken: object, fails: Callable[..., None], real: Callable[..., object]) -> Callable[..., object]:
    def method(self: object, *args: object) -> object:
        return fails() if self is broken else real(self, *args)

    return method


def test_a_rollout_waits_for_a_drain_but_not_for_a_proof_of_death():
    """Nobody may ever see the end of a broker that left in order: it holds nothing, so the next one may go."""

    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        layout = leader.loop.topics[TOPIC].layout
        assert layout is not None
        leaving = scene.fleet.brokers[layout.segments[0].primary.incarnation]
        other = next(b for b in scene.fleet.brokers.values() if b is not leaving)

        async def others_drain() -> bool:
            reply = await leader.call("Report", other.report())
            assert isinstance(reply, lpb.BrokerReportReply)
            return reply.others_drain

        assert not await others_drain()
        leaving.draining = True
        await leader.call("Report", leaving.report())
        assert await others_drain(), "it holds a segment yet"
        incarnation = leaving.replica.incarnation
        await until(lambda: not leader.loop.held_by(incarnation), what="everything has gone from it")
        leaving.answers = False
        assert not await others_drain()
        assert leader.registry.get(incarnation).gone is None  # type: ignore[union-attr]

    run(work)
