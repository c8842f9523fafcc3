"""A deleted topic is sealed before its deletion is answered, whatever dies meanwhile, and by whoever leads then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from smq_core.errors import Conflict, StoreUnavailable
from smq_core.replica import SegmentReplica, State
from smq_operator import collect, endings, service_people
from smq_operator import loop as leader_loop
from smq_operator.collect_deleted import Living, note_vanished
from smq_operator.lifecycle import adopt, note_deletion
from smq_operator.world import Wish
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from smq_storage import layouts
from smq_storage.conditional import Patience
from smq_storage.retired import Retired, read_retired, write_retired
from smq_storage.store import Store, open_store
from smq_storage.topics import read_current
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, Refused, leading, until

TOPIC = "default/t"
DELETE = pb.LocateRequest(topic="t")


class Scene:
    """Three brokers and a topic of two segments, which a first leader has opened."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        self.world = FakeWorld()
        for number in range(3):
            self.fleet.add(f"b{number}")
        self.world.wish(TOPIC, min_segments=2)

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.world, self.fleet, self.store)

    async def open(self, leader: LeaderInMemory) -> None:
        def settled() -> bool:
            run = leader.loop.topics.get(TOPIC)
            return run is not None and run.layout is not None and len(self.held) == 4 and not leader.loop._tasks

        await until(settled, what="two segments on two brokers each")

    @property
    def held(self) -> list[SegmentReplica]:
        return [machine for broker in self.fleet.brokers.values() for machine in broker.held.values()]

    @property
    def uid(self) -> str:
        (uid,) = {key[0] for broker in self.fleet.brokers.values() for key in broker.held}
        return uid

    def appending(self) -> list[str]:
        """The segments that can still ack: no replica of them is fenced."""
        fenced = {m.config.segment for m in self.held if m.state in (State.FENCED, State.SEALED)}
        return sorted({m.config.segment for m in self.held} - fenced)

    def is_noted(self) -> bool:
        retired = read_retired(self.store, self.uid)
        return retired is not None and retired.sealed


def test_the_answer_comes_when_nothing_of_the_topic_is_acked_any_more():
    async def main() -> None:
        scene = Scene()
        leader = scene.leader()
        async with leading(leader):
            await scene.open(leader)
            assert len(scene.appending()) == 2
            await leader.call("DeleteTopic", DELETE)
            assert not scene.appending()
            assert scene.is_noted()
            await until(lambda: all(m.state is State.SEALED for m in scene.held), what="all replicas let go")

    asyncio.run(main())


def test_a_deleted_resource_is_sealed_too():
    async def main() -> None:
        scene = Scene()
        scene.world.topics[TOPIC] = replace(scene.world.topics[TOPIC], uid="of-the-resource")
        leader = scene.leader()
        async with leading(leader):
            await scene.open(leader)
            del scene.world.topics[TOPIC]
            leader.loop.world_changed()
            await until(lambda: not scene.appending() and scene.is_noted())
            current = read_current(scene.store, TOPIC)
            assert current is not None and current[0] == "", "whoever asks a broker hears that it is gone"

    asyncio.run(main())


class Hanging:
    """Lets ``left`` of the effects of an ending begin; whoever begins the next one hangs there for ever.

    ``unheard``: that one is carried out, but its answer is never heard.
    """

    def __init__(self, leader: LeaderInMemory, left: int, how: str) -> None:
        self.left, self.how, self.reached = left, how, False
        self._call, self._in_pool = leader.fleet.call, leader.effects.in_pool
        leader.desk.endings._brokers = self  # type: ignore[assignment]
        leader.effects.in_pool = self.in_pool  # type: ignore[method-assign]

    async def _effect(self, work: Callable[..., Any], *args: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            return await work(*args, **named)
        self.reached = True
        if self.how == "unheard" and self.left == -1:
            await work(*args, **named)
        return await asyncio.Event().wait()

    async def call(self, *args: Any, **named: Any) -> Any:
        return await self._effect(self._call, *args, **named)

    async def in_pool(self, call: Callable[..., Any], *args: Any) -> Any:
        ending = (
            endings.retire,
            service_people.retire,
            endings._end_layout,
            endings.mark_sealed,
            endings.seal_in_filer,
        )
        if call in ending:
            return await self._effect(self._in_pool, call, *args)
        return await self._in_pool(call, *args)


async def interrupted(left: int, how: str) -> bool:
    scene = Scene()
    first = scene.leader()
    async with leading(first):
        await scene.open(first)
        hanging = Hanging(first, left, how)
        answer = asyncio.ensure_future(first.call("DeleteTopic", DELETE))
        await until(lambda: hanging.reached or answer.done())
        await asyncio.sleep(0.05)  # whatever is still under way goes as far as it can
        done = answer.done()
        if done:
            assert not scene.appending(), "it was told as done"
        answer.cancel()
    second = scene.leader()
    current = read_current(scene.store, TOPIC)
    deleted = current is not None and current[0] != scene.uid
    uid = scene.uid
    async with leading(second):
        if deleted:
            await until(lambda: (it := read_retired(scene.store, uid)) is not None and it.sealed, what=f"{left} {how}")
            old = [m for b in scene.fleet.brokers.values() for key, m in b.held.items() if key[0] == uid]
            open_ones = {m.config.segment for m in old} - {m.config.segment for m in old if m.outcome is not None}
            assert not open_ones
        else:
            assert TOPIC in second.world.topics and len(scene.appending()) == 2, "nothing was deleted"
    return not done


@pytest.mark.parametrize("how", ["before", "unheard"])
def test_a_leader_stopped_after_any_effect_is_followed_by_one_that_finishes(how):
    async def every() -> list[bool]:
        return await asyncio.gather(*(interrupted(left, how) for left in range(14)))

    cut = asyncio.run(every())
    assert sum(cut) >= 6 and not cut[-1], "it was stopped everywhere, and once not at all"


def test_while_nobody_answers_the_deletion_says_why_and_can_be_waited_for_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service_people, "SEALED_WITHIN", 0.3)

    async def main() -> None:
        scene = Scene()
        leader = scene.leader()
        async with leading(leader):
            await scene.open(leader)
            for broker in scene.fleet.brokers.values():
                broker.answers = False
            for broker in leader.registry.all():
                broker.doubted = True
            for _ in range(2):
                with pytest.raises(Refused, match=r"is deleted, but not all .* not proved gone .* delete it again"):
                    await leader.call("DeleteTopic", DELETE)
            for incarnation, broker in scene.fleet.brokers.items():
                broker.living = False
                scene.world.dead[incarnation] = "killed by the test"
            monkeypatch.setattr(service_people, "SEALED_WITHIN", 8.0)
            await leader.call("DeleteTopic", DELETE)
            assert scene.is_noted()

    asyncio.run(main())


def test_a_resource_that_vanished_while_nobody_led_loses_its_name_at_once_and_a_manifest_does_not():
    store, patience = open_store("memory://"), Patience(2.0)
    spec = Wish(TOPIC, Scene().world.topics[TOPIC].spec).spec
    given = adopt(store, Wish("default/given", spec, uid="u-1"), patience, 0, "here").topic
    made = adopt(store, Wish("default/made", spec), patience, 0, "here").topic
    note_deletion(store, given.name, given.uid, patience, 5)  # the leader was stopped right behind that
    note_vanished(store, Living((), (), (), sure=True), "here", 9, patience)
    names = [read_current(store, topic.name) for topic in (given, made)]
    assert [found and found[0] for found in names] == ["", made.uid]
    assert endings._unsealed(store, set()) == [(given.name, given.uid)]


def test_records_of_earlier_versions_are_looked_at_once():
    store = open_store("memory://")
    write_retired(store, Retired("default/old", "u-0", 1, False, sealed=True))
    ended: set[str] = set()
    assert endings._unsealed(store, ended) == [] and ended == {"u-0"}


def test_a_change_that_was_under_way_when_the_topic_was_deleted_lands_no_more():
    async def main() -> None:
        scene = Scene()
        leader = scene.leader()
        async with leading(leader):
            await scene.open(leader)
            uid = scene.uid
            found = layouts.read_layout(scene.store, TOPIC, uid)
            assert found is not None
            await leader.call("DeleteTopic", DELETE)
            late = replace(found[0], version=found[0].version + 1, writer="late")
            with pytest.raises(Conflict):
                layouts.put_layout(scene.store, late, found[1], Patience(1.0))
            left = layouts.read_layout(scene.store, TOPIC, uid)
            assert left is not None and left[0].ended

    asyncio.run(main())


def test_a_broker_stays_until_what_it_holds_of_a_deleted_topic_is_sealed(monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        scene = Scene()
        leader = scene.leader()
        with pytest.raises(Refused, match="does not know yet what is being deleted"):
            await leader.call("DeleteTopic", DELETE)
        async with leading(leader):
            await scene.open(leader)
            monkeypatch.setattr(service_people, "SEALED_WITHIN", 0.1)
            for broker in scene.fleet.brokers.values():
                broker.draining, broker.answers = True, False
            with pytest.raises(Refused, match="not all of its segments are sealed yet"):
                await leader.call("DeleteTopic", DELETE)
            holders = {m.config.me for m in scene.held}
            for name, broker in scene.fleet.brokers.items():
                reply = await leader.call("Report", broker.report())
                assert isinstance(reply, lpb.BrokerReportReply) and reply.may_leave == (name not in holders)
            for broker in scene.fleet.brokers.values():
                broker.answers = True
            await until(scene.is_noted, what="it is sealed")
            for broker in scene.fleet.brokers.values():
                reply = await leader.call("Report", broker.report())
                assert isinstance(reply, lpb.BrokerReportReply) and reply.may_leave

    asyncio.run(main())


class Unread:
    """A topic that a first leader opened, and that the next one cannot read from the filer: ``read`` says when it can.

    ``asked`` is set as soon as it tries; it fails then, or with ``hangs`` waits until it can be read.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, given: bool, hangs: bool = False) -> None:
        self.scene, self.hangs = Scene(), hangs
        if given:
            self.scene.world.topics[TOPIC] = replace(self.scene.world.topics[TOPIC], uid="of-the-resource")
        self.asked, self.read = threading.Event(), threading.Event()
        self._monkeypatch = monkeypatch

    async def next_leader(self) -> LeaderInMemory:
        first = self.leader()
        async with leading(first):
            await self.scene.open(first)
        self._monkeypatch.setattr(leader_loop, "adopt", self._adopt)
        return self.leader()

    def leader(self) -> LeaderInMemory:
        leader = self.scene.leader()
        leader.loop.owner = "here"
        return leader

    def unwish(self, leader: LeaderInMemory) -> None:
        del self.scene.world.topics[TOPIC]
        leader.loop.world_changed()

    def _adopt(self, *args: Any) -> object:
        self.asked.set()
        if not self.read.wait(10.0 if self.hangs else 0.0):
            raise StoreUnavailable("broken by the test")
        return adopt(*args)


def test_a_topic_that_a_new_leader_has_not_read_yet_is_not_said_to_be_deleted(monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        unread = Unread(monkeypatch, given=False)
        scene, leader = unread.scene, await unread.next_leader()
        async with leading(leader):
            await until(lambda: unread.asked.is_set() and leader.desk.endings.looked)
            monkeypatch.setattr(service_people, "ADOPTED_WITHIN", 0.2)
            with pytest.raises(
                Refused, match=r"not deleted, and nothing was changed: .*broken by the test.* Try again"
            ):
                await leader.call("DeleteTopic", DELETE)
            assert TOPIC in scene.world.topics and len(scene.appending()) == 2
            monkeypatch.setattr(service_people, "ADOPTED_WITHIN", 5.0)
            answer = asyncio.ensure_future(leader.call("DeleteTopic", DELETE))
            unread.read.set()
            await answer
            assert not scene.appending() and scene.is_noted()

    asyncio.run(main())


def test_a_resource_that_is_deleted_while_a_new_leader_reads_its_topic_is_sealed_too(monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        unread = Unread(monkeypatch, given=True, hangs=True)
        scene, leader = unread.scene, await unread.next_leader()
        monkeypatch.setattr(collect, "note_vanished", lambda *args: [])  # the next look may be far away
        async with leading(leader):
            await until(unread.asked.is_set)
            unread.unwish(leader)
            await until(lambda: TOPIC not in leader.loop.topics)
            unread.read.set()
            await until(lambda: not scene.appending() and scene.is_noted(), what="it is sealed")

    asyncio.run(main())


def test_a_resource_that_is_deleted_before_a_new_leader_could_read_its_topic_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
):
    looks = []

    def look(*args: Any) -> list[str]:
        looks.append(args)
        if len(looks) == 1:
            raise StoreUnavailable("broken by the test")
        return note_vanished(*args)

    async def main() -> None:
        unread = Unread(monkeypatch, given=True)
        scene, leader = unread.scene, await unread.next_leader()
        monkeypatch.setattr(collect, "note_vanished", look)
        monkeypatch.setattr(endings, "LOOK_EVERY", 0.1)
        async with leading(leader):
            await until(unread.asked.is_set)
            unread.unwish(leader)
            await until(lambda: not scene.appending() and scene.is_noted(), what="it is sealed")
        assert len(looks) == 2, "once more, since the filer did not answer"

    asyncio.run(main())
