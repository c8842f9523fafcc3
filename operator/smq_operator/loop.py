"""The leader's loop: compares wishes, layouts and brokers, and lets core say what is to be done.

Level-triggered: it runs at every kick (an answer, a report, a dead child, a request) and every 100 ms. A kick may name
the topic that it is about; whatever it is, each topic is looked at now and then, so that none depends on it. Everything
here happens on one event loop, so there are no locks; only stores and brokers are waited for, in tasks. A topic that
fails is set aside for a second; the others go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from smq_core.autoscale import lasting
from smq_core.decide import Decision
from smq_core.effects import Effect, OpenReplica, PutLayout
from smq_core.errors import SmqError, StoreUnavailable, Unavailable, UnknownTopic
from smq_core.leading import TopicLeader
from smq_core.model import SECOND, Layout
from smq_core.placement import BrokerView
from smq_core.rebalance import carried
from smq_operator.effects import Effects
from smq_operator.lifecycle import Adopted, adopt
from smq_operator.registry import Registry, work_of
from smq_operator.topic import TopicRun
from smq_operator.world import Wish, World
from smq_storage.conditional import Patience
from smq_storage.store import Store

log = structlog.get_logger()

TICK = 0.1
SETTLE = 3_000_000
STOOD_STILL = 1_000_000
FLEET_STARTS_WITHIN = 15_000_000
"""So long a new leader waits for the brokers that shall run before it places a topic that is new."""
RETRY_TOPIC_AFTER = 1_000_000
KEPT_DECISIONS = 500


class LeaderLoop:
    """See the module's docstring."""

    def __init__(
        self,
        world: World,
        registry: Registry,
        store: Store,
        effects: Effects,
        clock: Callable[[], int],
        patience: Patience,
        settle: int = SETTLE,
    ) -> None:
        self.world = world
        self.registry = registry
        self.store = store
        self.effects = effects
        self.now = clock
        self.topics: dict[str, TopicRun] = {}
        self.decisions: deque[Decision] = deque(maxlen=KEPT_DECISIONS)
        self.decided: Counter[tuple[str, str]] = Counter()
        self.told: list[Callable[[TopicRun], None]] = []
        """Called with each topic that is announced to those who watch it."""
        self.rounds = 0
        self.on_removed: list[Callable[[TopicRun], None]] = []
        """Called when a topic is wished no more, and nothing of its adoption is under way."""
        self.owner = ""
        """Names this world in the topics that it wishes."""
        self._last_round = 0
        self._patience = patience
        self._settle = settle
        self._settles_at = clock() + settle
        self._fleet_until = clock() + FLEET_STARTS_WITHIN
        self._kicked = asyncio.Event()
        self._all_due = True
        self._world_changed = True
        self._looked = False
        self._ticked_at = 0
        self._synced_at = -SECOND
        self._unsettled = True
        """Some topic's last wish is not adopted yet."""
        self._states: object = None
        self._loads: dict[str, float] = {}
        self._weighed_at = -SECOND
        self._views: dict[str, BrokerView] | None = None
        self._work: Counter[str] = Counter()
        """What the layouts give each incarnation to do; one that is being put counts for the next topic already."""
        self._held: dict[str, list[str]] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    # ---- running

    def kick(self, run: TopicRun | None = None) -> None:
        """Something changed, with this topic or with any: the next round begins at once. Call it on the event loop."""
        if run is None:
            self._all_due = True
        else:
            run.due = True
        self._kicked.set()

    def world_changed(self) -> None:
        """The world has other answers now."""
        self._world_changed = True
        self.kick()

    async def run(self) -> None:
        """Runs until ``stop``. Brokers have time to report from now on: the store may have kept us from starting."""
        self._settles_at = self.now() + self._settle
        self._fleet_until = self.now() + FLEET_STARTS_WITHIN
        while not self._stopping:
            try:
                self.round()
            except Exception:
                log.exception("leader.round.failed")
            try:
                async with asyncio.timeout(TICK):
                    await self._kicked.wait()
            except TimeoutError:
                pass
            self._kicked.clear()

    async def stop(self) -> None:
        """Starts nothing more; what is under way is left: whoever leads next repeats it."""
        self._stopping = True
        self.kick()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None], about: TopicRun | None = None) -> asyncio.Task[None]:
        """Runs something beside the loop; when it is done, the topic that it is ``about`` is looked at."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, about))
        return task

    def _done(self, about: TopicRun | None, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("leader.task.failed", exc_info=error)
        if about is not None:
            self.kick(about)

    # ---- one round

    def round(self) -> None:
        """Looks at everything once."""
        now = self.now()
        if self.rounds and now - self._last_round > STOOD_STILL:
            log.warning("leader.stood.still", seconds=(now - self._last_round) / 1e6)
            self.registry.slept(now - self._last_round)
        self._last_round = now
        self.rounds += 1
        if self._world_changed or now - self._ticked_at >= TICK * 1e6:
            self._tick(now)
        states = self.registry.states(now)
        if states != self._states:
            self._states, self._views, self._all_due = states, None, True
        every, self._all_due = self._all_due, False
        starting = now < self._fleet_until and len(self.registry.living(now)) < self.world.brokers_wanted()
        for run in list(self.topics.values()):
            if run.leader is None or now < run.retry_at or not (every or run.due or now >= run.look_at):
                continue
            run.due = False
            self._count(run)
            try:
                effects = run.leader.step(now, {} if starting and run.layout is None else self.views())
                run.look_at = now if effects else run.look_after(now)
                self._tell(run)
                for effect in effects:
                    self._start(run, run.leader, effect)
            except Exception as error:
                self._set_aside(run, error)

    def _set_aside(self, run: TopicRun, error: Exception) -> None:
        """What goes wrong with one topic must not touch the others; it is led anew, from the filer, in a moment."""
        log.exception("topic.failed", topic=run.name)
        run.leader, run.retry_at = None, self.now() + RETRY_TOPIC_AFTER
        run.adopted_wish = None
        self._unsettled = True
        run.problem = f"leading it failed ({error}); it is tried again every second, and the leader's log says more"
        self._count(run)

    def _count(self, run: TopicRun) -> None:
        """Takes in which layout the topic has now, or soon will have."""
        layout = None if run.removed else run.expected or run.layout
        if layout is not run.counted:
            self._work.subtract(work_of([run.counted] if run.counted is not None else []))
            self._work.update(work_of([layout] if layout is not None else []))
            run.counted = layout
            self._views = self._held = None

    def _tick(self, now: int) -> None:
        """What need not be done at every kick."""
        news, self._ticked_at, self._world_changed = self._world_changed, now, False
        if news or self._unsettled or now - self._synced_at >= SECOND:
            self.sync_wishes()
        for broker in self.registry.check_proofs(self.layouts().values(), now):
            log.warning(
                "broker.gone",
                broker=broker.replica.broker,
                incarnation=broker.replica.incarnation,
                proof=broker.gone,
            )
            self.effects.gone(broker.replica.incarnation)
        if now - self._weighed_at >= SECOND:  # brokers report as often
            self._weighed_at, self._loads, self._views = now, self._traffic(), None
            if self.knows_everything:
                named = {r.incarnation for v in self._expected() for s in v.segments for r in s.replicas}
                for incarnation in self.registry.forget(named, now):
                    self.effects.gone(incarnation)

    def _start(self, run: TopicRun, leader: TopicLeader, effect: Effect) -> None:
        if isinstance(effect, OpenReplica):
            name, incarnation = effect.segment.name, effect.replica.incarnation
            if self.registry.holds(incarnation, leader.topic.uid, name):  # an earlier leader opened it
                leader.opened(name, incarnation)
                self.kick(run)
                return
        if isinstance(effect, PutLayout):
            run.expected = effect.layout
            self._count(run)
        self.spawn(self.effects.run(run, leader, effect), run)

    def _tell(self, run: TopicRun) -> None:
        """Decisions to the log, changes of the layout to watchers."""
        leader = run.leader
        assert leader is not None
        for decision in leader.decisions:
            self.note(decision)
        if leader.decisions:
            leader.decisions.clear()
            run.announce()  # whoever asked for something may have to hear that it cannot be done any more
        shown = (leader.etag, run.index_changes)
        if shown != run.shown:
            run.shown = shown
            self._held = None
            self._announce(run)

    def _announce(self, run: TopicRun) -> None:
        run.announce()
        for tell in self.told:
            tell(run)

    def note(self, decision: Decision) -> None:
        """Keeps a decision for people to see, and logs it."""
        self.decisions.append(decision)
        self.decided[decision.topic, decision.action] += 1
        log.info(
            "decision",
            topic=decision.topic,
            action=decision.action,
            segments=list(decision.segments),
            reason=decision.reason,
        )

    # ---- topics

    def sync_wishes(self) -> None:
        """Takes in which topics are wished now."""
        wishes, now = self.world.wishes(), self.now()
        self._looked, self._synced_at, self._unsettled = True, now, False
        for name in [name for name in self.topics if name not in wishes]:
            run = self.topics.pop(name)
            run.removed = True
            self._count(run)
            self._held = None
            self._announce(run)
            log.info("topic.removed", topic=name)
            if not run.adopting:
                self._tell_removed(run)
        for name, wish in wishes.items():
            run = self.topics.setdefault(name, TopicRun(wish))
            if run.wish.paused != wish.paused:
                words = "is" if wish.paused else "is no more"
                self.note(Decision(now, name, "pause" if wish.paused else "resume", (), f"autoscaling {words} paused"))
                if run.adopted_wish is not None:
                    run.adopted_wish = replace(run.adopted_wish, paused=wish.paused)  # the filer need not hear of it
            run.wish = wish
            if run.leader is not None and run.leader.paused != wish.paused:
                run.leader.paused, run.due = wish.paused, True
            if run.adopted_wish is wish or run.adopted_wish == wish:
                continue
            self._unsettled = True
            if not run.adopting and now >= run.retry_at:
                run.adopting = True
                self.spawn(self._adopt(run, wish), run)

    async def _adopt(self, run: TopicRun, wish: Wish) -> None:
        try:
            adopted = await self.effects.in_pool(adopt, self.store, wish, self._patience, self.now(), self.owner)
        except Exception as error:
            run.retry_at = self.now() + RETRY_TOPIC_AFTER
            run.problem = error.message if isinstance(error, SmqError) else f"unexpected: {error}"
            log.warning("topic.adopt.failed", topic=wish.name, message=run.problem)
        else:
            self._take(run, wish, adopted)
        finally:
            run.adopting = False
        if run.removed:  # meanwhile: what has just been written is to be taken back
            self._tell_removed(run)

    def _take(self, run: TopicRun, wish: Wish, adopted: Adopted) -> None:
        """The topic is written down as this says."""
        if run.removed:
            run.topic = adopted.topic
            return
        run.problem = adopted.problem
        run.adopted_wish = wish
        known = run.leader.topic if run.leader is not None else None
        if run.leader is None or known is None or known.uid != adopted.topic.uid:
            run.lead(adopted.topic, self._settles_at)
            log.info("topic.adopted", topic=wish.name, uid=adopted.topic.uid)
        else:
            run.topic = run.leader.topic = adopted.topic
        if adopted.problem:
            log.warning("topic.wish.refused", topic=wish.name, message=adopted.problem)
        self._announce(run)

    def _tell_removed(self, run: TopicRun) -> None:
        for tell in self.on_removed:
            tell(run)

    async def adopted(self, name: str, timeout: float = 5.0) -> TopicRun:
        """The topic, when its last wish has been adopted. Raises UnknownTopic, StoreUnavailable."""
        self.sync_wishes()
        try:
            async with asyncio.timeout(timeout):
                while True:
                    run = self.topic(name)
                    if run.adopted_wish == run.wish:
                        return run
                    await run.change()
        except TimeoutError:
            why = self.topic(name).problem or "the filer does not answer"
            raise StoreUnavailable(
                f"topic {name} is written down, but not made yet: {why}. It is made as soon as that ends"
            ) from None

    def topic(self, name: str) -> TopicRun:
        """The topic of that full or bare name. Raises UnknownTopic; Unavailable before the first look at the wishes."""
        full = full_name(name)
        run = self.topics.get(full)
        if run is None and not self._looked:
            raise Unavailable("this leader has just begun and does not know its topics yet: try again in a moment")
        if run is None:
            there = ", ".join(sorted(self.topics)) or "none"
            raise UnknownTopic(f"there is no topic {full} (there: {there}): apply its manifest first")
        return run

    # ---- what the others ask

    def layouts(self) -> Mapping[str, Layout]:
        """The layouts that are known, by topic."""
        return {name: run.layout for name, run in self.topics.items() if run.layout is not None}

    def _expected(self) -> list[Layout]:
        """The layouts with what is being put, so that one round's placements count for the next topic."""
        both = (run.expected or run.layout for run in self.topics.values())
        return [layout for layout in both if layout is not None]

    def views(self) -> dict[str, BrokerView]:
        """The brokers as core sees them now."""
        if self._views is None:
            self._views = self.registry.views(self._work, self._loads, self.now())
        return self._views

    def _traffic(self) -> dict[str, float]:
        """What each incarnation carries of all topics, in targets of the topics."""
        found: dict[str, float] = {}
        for run in self.topics.values():
            if run.leader is None or run.layout is None:
                continue
            spec, loads = run.leader.topic.spec, run.leader.load.segments
            try:
                pressures = {name: lasting(load, spec) for name, load in loads.items() if not load.nothing}
            except Exception as error:
                self._set_aside(run, error)
                continue
            if not pressures:
                continue
            for incarnation, targets in carried(run.layout.segments, pressures).items():
                found[incarnation] = found.get(incarnation, 0.0) + targets
        return found

    @property
    def settled(self) -> bool:
        """Whether this leader leads for so long that what was there before has been heard of."""
        return self.now() >= self._settles_at

    @property
    def knows_everything(self) -> bool:
        """True when no topic's layout is still to be read; a topic that has none yet gives nobody anything to hold."""
        leaders = [run.leader for run in self.topics.values()]
        return self.rounds > 0 and all(leader is not None and leader.knows_layout for leader in leaders)

    def held_by(self, incarnation: str) -> list[str]:
        """The segments that layouts give to this incarnation, or soon will."""
        if self._held is None:
            self._held = {}
            for run in self.topics.values():
                found = {
                    (replica.incarnation, segment.name): None
                    for layout in (run.layout, run.expected)
                    for segment in (layout.segments if layout is not None else ())
                    for replica in segment.replicas
                }
                for holder, name in found:
                    self._held.setdefault(holder, []).append(name)
        return self._held.get(incarnation, [])


def full_name(name: str) -> str:
    """``namespace/topic``; a bare name is in the namespace ``default``."""
    return name if "/" in name else f"default/{name}"
