"""The leader's side of retention: the operator's own ``retain`` in virtual time, at a pace, as its Collector does it.

A leader that is killed in the middle leaves what it has begun to whoever leads next; two may be at it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from smq_core.errors import SmqError
from smq_core.model import TopicSpec
from smq_core.retention import GroupState, expired
from smq_operator import retain
from smq_operator.collecting import Patience as Pace
from smq_storage import paths
from smq_storage.index import IndexPage
from smq_storage.records import to_json
from smq_storage.topics import Current
from support.sim.chain import INDEX
from support.sim.filer import TOPIC, UID, Filer
from support.sim.reader import ReaderNode
from support.sim.virtual_asyncio import VirtualLoop
from support.sim.world import SECOND, Future, Steps

if TYPE_CHECKING:
    from support.sim.elastic import ElasticHistory
    from support.sim.elastic_leader import ElasticLeader

FOR_EVER = 1 << 60
LOOK_EVERY = SECOND // 2
PACE = Pace(every=2 * SECOND, removed_files=15 * SECOND, look_every=FOR_EVER)
"""Files stay for longer than anybody stands still, as they do outside of the simulation."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the topic says of retention; ``on`` is False when nothing ever goes."""

    on: bool
    age: int | None = None
    messages: int | None = None
    """A message counts one byte here."""
    keeps_unread: bool = True

    def of(self, spec: TopicSpec) -> TopicSpec:
        return replace(
            spec,
            retention_age=self.age,
            retention_bytes=self.messages,
            retention_keeps_unread=self.keeps_unread,
            retention_abandoned_after=None,
        )


def draw(seed: int) -> Limits:
    """By dice of its own: histories without retention are the same with and without this file."""
    dice = Random(f"retention {seed}")
    if dice.random() < 0.6:
        return Limits(on=False)
    age = dice.choice([None, None, 2, 5, 9])
    messages = dice.choice([0, 0, 40, 300]) if age is None or dice.random() < 0.3 else None
    return Limits(True, age * SECOND if age is not None else None, messages, dice.random() < 0.7)


def begin(history: ElasticHistory) -> None:
    """Whose the topic's name is: each pass asks for that. Members stand still now and then; a reader comes late."""
    history.store.put_at_once(f"doc/{paths.current(TOPIC)}", to_json(Current(UID)))
    world = history.world
    world.after(history.horizon * 2 // 3, lambda: history.readers.append(ReaderNode(history, "r1", {}, SECOND, [])))
    for _ in range(world.random.choice([0, 1, 2])):
        at, stands = world.between(0, history.horizon), world.between(3 * SECOND, 25 * SECOND)
        world.after(at, lambda stands=stands: history.faults.pause_members(stands))


class Retainer:
    """For one leader. ``begun``: by incarnation, the segments that it says it holds and that do not wait."""

    def __init__(self, leader: ElasticLeader) -> None:
        self.leader = leader
        self.begun: dict[str, frozenset[str]] = {}
        self.loop = VirtualLoop(leader.process)
        self._filer: Any = Filer(leader.store, leader.process)
        self._patience = self._filer.patience(5.0)

    def keep(self) -> Steps:
        world = self.leader.world
        looked_at, known = 0, ""
        while True:
            yield world.between(LOOK_EVERY * 3 // 4, LOOK_EVERY * 5 // 4)
            try:
                found = yield self.leader.store.get(self.leader.process, INDEX)
                if found is None or (found[1] == known and world.now - looked_at < PACE.every):
                    continue
                looked_at, known = world.now, found[1]
                yield from self._pass(found[0])
            except SmqError as error:
                world.tell(self.leader.process.name, "", f"retention is put off: {error.message}")

    def _pass(self, page: IndexPage) -> Steps:
        leader, topic = self.leader, self.leader.machine.topic
        now = leader.clock()
        leader.checker.retained.decided[now] = leader.world.now
        if expired(topic.spec, page.entries, [], now).removals:
            groups = yield from self._groups()
            begun = {(incarnation, name) for incarnation, names in self.begun.items() for name in names}
            verdict = yield self._do(retain.remove_expired, self._filer, topic, groups, begun, now, self._patience)
            for removal in verdict.removals:
                leader.world.tell(leader.process.name, removal.segment.name, f"removed: {removal.because}")
        before = now - PACE.removed_files
        if any(it.files and it.removed_at <= before for it in page.gone):
            done, count = yield self._do(retain.delete_files, self._filer, topic, before, self._patience)
            for it in done:
                leader.world.tell(leader.process.name, it.name, f"its files are deleted, {count} with others")

    def _groups(self) -> Steps:
        """As ``Groups.states``: what the files say, and the groups that this leader serves as it knows them."""
        leader = self.leader
        states = {}
        for name in (yield leader.store.list(leader.process, "group/")):
            found = yield leader.store.get(leader.process, name)
            if found is not None:
                states[name.removeprefix("group/")] = found[0].positions
        for name, it in leader.groups.groups.items():
            if it.group.members or name not in states:  # one without members may be another leader's by now
                states[name] = dict(it.group.positions)
        return [GroupState(name, positions) for name, positions in states.items()]

    def do(self, call: Callable[..., Any], *args: Any) -> Future:
        """A blocking call with this leader's view of the store."""
        return self._do(call, self._filer, *args)

    def _do(self, call: Callable[..., Any], *args: Any) -> Future:
        async def work() -> Any:
            return await self.loop.run_in_executor(None, call, *args)

        return self.loop.start(work())
