"""Keeps what the API server shows of topics as the leader knows them: writes on change, and puts back what was edited.

Level-triggered like the leader's loop: whatever hints that a topic changed, all of it is compared. It looks when the
loop tells of a topic, when the cache hears of a Topic or Segment, and once a second for what neither tells of. A write
that fails is not repeated; its topic is compared again, later each time. The leader goes on whether the API answers or
not.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

import structlog

from smq_core.decide import Decision
from smq_operator.kube.cache import Cache
from smq_operator.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from smq_operator.kube.events import About, EventWriter, Happened
from smq_operator.kube.facts import Trouble, Watch, facts_of, unread_by
from smq_operator.kube.kinds import SEGMENTS, TOPICS, Key, Kind, Resource
from smq_operator.kube.projection import writes
from smq_operator.kube.telling import Teller, key_of_topic
from smq_operator.kube.writer import Calls, Writer
from smq_operator.loop import LeaderLoop
from smq_operator.topic import TopicRun

log = structlog.get_logger()

PACE = 0.2
LOOK_EVERY = 1.0
PARALLEL = 8
RETRY_FIRST, RETRY_MOST = 0.5, 30.0
SETTLE = 5_000_000
"""A new leader has heard of few brokers and read few layouts: what it does not know is no trouble before that."""


@dataclass(slots=True)
class _Kept:
    """What is remembered of one topic from one look to the next."""

    watch: Watch = field(default_factory=Watch)
    news: object = None
    trouble: Trouble = field(default_factory=Trouble)
    decision: Decision | None = None
    without_layout_since: int | None = None
    busy: bool = False
    waiting: bool = False
    """An annotation waits for something."""
    failures: int = 0
    not_before: float = 0.0


class Projector:
    """See the module's docstring. Use it on the loop's event loop; ``settle`` in microseconds."""

    def __init__(self, loop: LeaderLoop, api: Calls, cache: Cache, events: EventWriter, settle: int = SETTLE) -> None:
        self._loop = loop
        self._cache = cache
        self._events = events
        self._writer = Writer(api, cache, events)
        self._teller = Teller(loop, cache, events)
        self._settle = settle
        self._kept: dict[str, _Kept] = {}
        self._due: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(PARALLEL)
        self._segments: defaultdict[str, set[str]] = defaultdict(set)
        """By topic: the names of its Segment resources."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = loop.now()
        loop.told.append(lambda run: self._hint(run.name))
        cache.on_change(self._heard)
        for namespace, name in cache.segments:
            self._segments[_topic_in(namespace, name)].add(name)

    @property
    def written(self) -> int:
        """How many writes the API server took, Events aside."""
        return self._writer.written

    @property
    def busy(self) -> bool:
        """Whether some topic is to be compared, or is being."""
        return bool(self._due) or any(kept.busy for kept in self._kept.values())

    # ---- hints

    def _heard(self, kind: Kind, key: Key, resource: Resource | None) -> None:
        namespace, name = key
        if kind is TOPICS:
            self._hint(f"{namespace}/{name}")
        elif kind is SEGMENTS:
            topic = _topic_in(namespace, name)
            names = self._segments[topic]
            names.add(name) if resource is not None else names.discard(name)
            if not names:
                del self._segments[topic]
            self._hint(topic)

    def _hint(self, topic: str) -> None:
        self._due[topic] = None
        self._wake.set()

    # ---- running

    async def keep(self) -> None:
        """Runs until it is cancelled."""
        clock = asyncio.get_running_loop().time
        looked = clock() - LOOK_EVERY
        try:
            while True:
                try:
                    if clock() - looked >= LOOK_EVERY:
                        looked = clock()
                        self._look()
                    self._pass(clock())
                except Exception:
                    log.exception("projector.failed")
                self._wake.clear()
                await asyncio.sleep(PACE)
                try:
                    async with asyncio.timeout_at(looked + LOOK_EVERY):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            for task in self._tasks:
                task.cancel()

    def _look(self) -> None:
        """Marks the topics of which something that is shown has changed, and those that wait."""
        now, loop, settled = self._loop.now(), self._loop, self._settled
        well = loop.registry.well(now)
        for name in [name for name in self._kept if name not in loop.topics]:
            del self._kept[name]
        for name, run in loop.topics.items():
            kept = self._keep(name)
            kept.trouble = kept.watch.look(run, loop.registry, well, now) if settled else Trouble()
            etag = run.leader.etag if run.leader is not None else None
            wish = (run.problem, run.adopted_wish == run.wish, run.wish.paused)
            news = (settled, etag, run.index_changes, unread_by(run), wish, kept.trouble)
            if news != kept.news or kept.waiting or run.layout is None:
                kept.news = news
                self._due[name] = None

    def _keep(self, name: str) -> _Kept:
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = _Kept()
        return kept

    def _pass(self, clock: float) -> None:
        """Starts the comparison of every topic that is due."""
        for decision in self._teller.tell():
            if decision.topic in self._loop.topics:
                self._keep(decision.topic).decision = decision
                self._due[decision.topic] = None
        wishes = self._loop.world.wishes() if self._due else {}
        for name in list(self._due):
            run = self._loop.topics.get(name)
            if run is None:
                del self._due[name]  # nobody wishes it; what it had goes by its owner's reference
                continue
            kept = self._keep(name)
            if kept.busy or clock < kept.not_before:
                continue
            del self._due[name]
            kept.busy = True
            task = asyncio.ensure_future(self._project(run, kept, run.adopted_wish == wishes.get(name)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # ---- one topic

    async def _project(self, run: TopicRun, kept: _Kept, followed: bool) -> None:
        try:
            async with self._room:
                await self._compare(run, kept, followed)
            kept.failures, kept.not_before = 0, 0.0
        except Exception as error:
            self._failed(run.name, kept, error)
        finally:
            kept.busy = False
            if run.name in self._due:
                self._wake.set()

    async def _compare(self, run: TopicRun, kept: _Kept, followed: bool) -> None:
        """Writes what is to be written of it now; ``followed``: its wish is. Raises KubeError at the first failure."""
        topic = self._cache.topics.get(key_of_topic(run.name))
        if topic is None or "deletionTimestamp" in topic["metadata"] or not self._is_known(run, kept, topic):
            return
        uid = topic["metadata"]["uid"]
        if run.topic is not None and run.topic.uid != uid:
            return  # the leader has an earlier one of this name still
        kept.waiting = await self._writer.follow_annotations(self._loop, run, self._resources(run.name))
        generation = topic["metadata"].get("generation") if followed else None
        facts = facts_of(run, generation, uid, kept.trouble, kept.decision)
        for write in writes(facts, topic, self._resources(run.name), self._loop.now()):
            await self._writer.write(write)

    def _resources(self, topic: str) -> dict[str, Resource]:
        namespace = key_of_topic(topic)[0]
        return {name: self._cache.segments[namespace, name] for name in sorted(self._segments.get(topic, ()))}

    @property
    def _settled(self) -> bool:
        return self._loop.now() - self._began >= self._settle

    def _is_known(self, run: TopicRun, kept: _Kept, topic: Resource) -> bool:
        """False while what the leader does not know yet is no reason to change what is shown."""
        is_new = not (topic.get("status") or {}).get("segments")
        if not (is_new or self._settled):
            return False
        if run.layout is not None and run.index_read:
            kept.without_layout_since = None
            return True
        now = self._loop.now()
        if kept.without_layout_since is None:
            kept.without_layout_since = now
        return (is_new and run.problem is not None) or now - kept.without_layout_since >= self._settle

    def _failed(self, name: str, kept: _Kept, error: Exception) -> None:
        kept.failures += 1
        wait = min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(kept.failures - 1, 10))
        kept.not_before = asyncio.get_running_loop().time() + wait
        self._due[name] = None
        if not isinstance(error, KubeError):
            log.error("projection.failed", topic=name, exc_info=error)
            return
        if isinstance(error, Forbidden) and "being terminated" in error.message:
            log.info("projection.namespace.ends", topic=name)
            return
        log.warning("projection.failed", topic=name, message=error.message, again_in=wait)
        topic = self._cache.topics.get(key_of_topic(name))
        if topic is not None and kept.failures > 2 and not isinstance(error, Unreachable | NotFound):
            self._events.tell(Happened(About.of(TOPICS, topic), "NotShown", error.message, warning=True))


def _topic_in(namespace: str, segment: str) -> str:
    """The full name of the topic of a Segment resource: its name ends in two numbers of a range and a count."""
    return f"{namespace}/{segment.rsplit('-', 3)[0]}"
