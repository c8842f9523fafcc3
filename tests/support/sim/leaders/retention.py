"""The leader's side of retention: the operator's own ``retain``, called periodically in virtual time.

If a leader is killed during a pass, the next leader finishes its work. Two leaders may run passes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from smq_core.errors import SmqError
from smq_core.model.entities import TopicSpec
from smq_core.reconcile.retention import GroupProgress, plan_retention
from smq_operator.cleanup import retention as retain
from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_storage.catalog.filer_time import read_filer_time
from smq_storage.catalog.sealed_index import IndexPage
from smq_storage.object_store.conditional_writes import RetryPolicy
from support.sim.clients.reader import SimulatedReader
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.world import SECOND, Future, Steps
from support.sim.filer.blocking_store import BlockingStore
from support.sim.filer.chunk_chain import INDEX

if TYPE_CHECKING:
    from support.sim.histories.elastic import ElasticHistory
    from support.sim.leaders.elastic_leader import ElasticLeader

FOR_EVER = 1 << 60
CHECK_EVERY = SECOND // 2
WRONG_CLOCKS = 0.6
# Files of removed segments stay longer than any process is paused, as in production.
CLEANUP = CleanupSettings(
    retention_interval_us=2 * SECOND, removed_files_grace_us=15 * SECOND, orphan_check_interval_us=FOR_EVER
)
GRACE = CLEANUP.removed_files_grace_us


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The topic's retention. ``on`` is false if nothing ever expires."""

    on: bool
    age: int | None = None
    messages: int | None = None
    """The limit of ``retention.bytes``, because a message counts as one byte here."""
    keeps_unread: bool = True

    def of(self, spec: TopicSpec) -> TopicSpec:
        return replace(
            spec,
            retention_age=self.age,
            retention_bytes=self.messages,
            retention_keeps_unread=self.keeps_unread,
            retention_abandoned_after=None,
        )


def draw(seed: int) -> RetentionLimits:
    """Uses a separate random generator, so that histories without retention do not depend on this file."""
    dice = Random(f"retention {seed}")
    if dice.random() < 0.6:
        return RetentionLimits(on=False)
    age = dice.choice([None, None, 2, 5, 9])
    messages = dice.choice([0, 0, 40, 300]) if age is None or dice.random() < 0.3 else None
    return RetentionLimits(True, age * SECOND if age is not None else None, messages, dice.random() < 0.7)


def begin(history: ElasticHistory) -> None:
    """Pauses members at times, and starts one reader late."""
    world = history.world
    world.after(
        history.horizon * 2 // 3, lambda: history.readers.append(SimulatedReader(history, "r1", {}, SECOND, []))
    )
    for _ in range(world.random.choice([0, 1, 2])):
        at, stands = world.between(0, history.horizon), world.between(3 * SECOND, 25 * SECOND)
        world.after(at, lambda stands=stands: history.faults.pause_members(stands))


class SimulatedRetention:
    """Retention of one leader. ``begun`` has the segments that each incarnation reports as hosted and not waiting."""

    def __init__(self, leader: ElasticLeader) -> None:
        self.leader = leader
        self.begun: dict[str, frozenset[str]] = {}
        self.loop = VirtualLoop(leader.process)
        self._filer: Any = BlockingStore(leader.store, leader.process)
        self._retry_policy = RetryPolicy(5.0)
        self._start_with_wrong_clock()

    def _start_with_wrong_clock(self) -> None:
        """Some leaders start on a machine whose clock is ahead, by more than ``retention.age``."""
        leader = self.leader
        dice = Random(f"clock {leader.world.seed} {leader.process.name}")
        if leader.history.limits.age is not None and dice.random() < WRONG_CLOCKS:
            leader.skew = dice.randint(5, 20) * SECOND
            leader.history.checker.jumped += leader.skew
            leader.world.note(
                "!", "", f"{leader.process.name} starts with a clock that is {leader.skew / SECOND} s ahead"
            )

    def keep(self) -> Steps:
        world = self.leader.world
        observed, known = 0, ""
        while True:
            yield world.between(CHECK_EVERY * 3 // 4, CHECK_EVERY * 5 // 4)
            try:
                found = yield self.leader.store.get(self.leader.process, INDEX)
                if found is None or (found[1] == known and world.now - observed < CLEANUP.retention_interval_us):
                    continue
                observed, known = world.now, found[1]
                yield from self._pass(found[0])
            except SmqError as error:
                world.note(self.leader.process.name, "", f"retention is put off: {error.message}")

    def _pass(self, page: IndexPage) -> Steps:
        leader, topic = self.leader, self.leader.machine.topic
        now = leader.clock()
        if plan_retention(topic.spec, page.entries, [], now).removals:
            clocks = yield from self.clocks()
            known = yield self._do(retain.read_consistent, self._filer, topic)
            groups = yield from self._groups()
            leader.checker.retained.decided[clocks.leader] = leader.world.now
            begun = {(incarnation, name) for incarnation, names in self.begun.items() for name in names}
            verdict = yield self._do(
                retain.remove_expired, self._filer, topic, known, groups, begun, clocks, self._retry_policy
            )
            for removal in verdict.removals:
                leader.world.note(leader.process.name, removal.segment.name, f"removed: {removal.because}")
        clocks = yield from self.clocks()
        if any(it.files and retain.age_of_removal(it, clocks) >= GRACE for it in page.removed_segments):
            done, count = yield self._do(retain.delete_files, self._filer, topic, clocks, CLEANUP, self._retry_policy)
            for it in done:
                leader.world.note(leader.process.name, it.name, f"its files are deleted, {count} with others")

    def _groups(self) -> Steps:
        """The groups' progress as ``Groups.states`` has it: from the store, or from memory for groups served here."""
        leader = self.leader
        states = {}
        for name in (yield leader.store.list(leader.process, "group/")):
            found = yield leader.store.get(leader.process, name)
            if found is not None:
                states[name.removeprefix("group/")] = found[0].positions
        for name, it in leader.groups.groups.items():
            it.group.expire(leader.clock())
            if it.group.members or name not in states:  # another leader may serve a group without members by now
                states[name] = dict(it.group.positions)
        return [GroupProgress(name, positions) for name, positions in states.items()]

    def clocks(self) -> Steps:
        """This leader's clock, which jumps, beside the filer's. Returns a ClockReading."""
        filer = yield self._do(read_filer_time, self._filer)
        return ClockReading(leader=self.leader.clock(), filer=filer)

    def do(self, call: Callable[..., Any], *args: Any) -> Future:
        """A blocking call with this leader's view of the store."""
        return self._do(call, self._filer, *args)

    def _do(self, call: Callable[..., Any], *args: Any) -> Future:
        async def work() -> Any:
            return await self.loop.run_in_executor(None, call, *args)

        return self.loop.start(work())
