"""Removes what is not wanted any more, beside the leader's loop: by retention, of deleted topics, and strays.

Level-triggered and without memory that matters, as everything of the leader: what is to be done is in the filer. One
thing at a time, so that collecting never crowds out what people wait for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import structlog

from smq_core.decide import Decision
from smq_core.errors import SmqError
from smq_core.model import SECOND, Topic
from smq_core.retention import Removal, Verdict, expired
from smq_operator.collect_deleted import Living, collect_deleted, note_vanished
from smq_operator.collect_strays import collect_strays
from smq_operator.collect_uploads import collect_uploads
from smq_operator.collecting import Patience as Pace
from smq_operator.groups import Groups
from smq_operator.lifecycle import note_deletion
from smq_operator.loop import LeaderLoop
from smq_operator.orphans import HOLDING
from smq_operator.retain import Held, delete_files, remove_expired
from smq_operator.topic import TopicRun
from smq_storage.conditional import Patience

log = structlog.get_logger()

TICK = 0.5
FIRST_LOOK = 15 * SECOND
"""So soon a new leader looks for topics that were deleted while nobody led: their segments still take messages."""
NAMED = 5
"""So many segments a decision's words name."""


class Collector:
    """See the module's docstring. Use it on the event loop; its counters are for the metrics."""

    def __init__(self, loop: LeaderLoop, groups: Groups, pace: Pace, patience: Patience) -> None:
        self._loop = loop
        self._groups = groups
        self._pace = pace
        self._patience = patience
        self._looked: dict[str, tuple[int, int]] = {}
        self._strays_at: dict[str, int] = {}
        self._kept: set[str] = set()
        self._unknown: set[tuple[str, str]] = set()
        self._deleted_at = 0
        self._vanished_at = 0
        self.removed: Counter[str] = Counter()
        self.removed_bytes: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self.failures = 0
        loop.on_removed.append(self._topic_removed)

    async def keep(self) -> None:
        """Runs for as long as this leader leads."""
        now = self._loop.now()
        self._deleted_at = now + self._pace.every
        self._vanished_at = now + min(self._pace.look_every, FIRST_LOOK)
        while True:
            await asyncio.sleep(TICK)
            for run in list(self._loop.topics.values()):
                if run.topic is not None and run.layout is not None and not run.removed:
                    await self._guarded(run.name, self._of_topic, run, run.topic)
            await self._guarded("", self._deleted_topics)

    async def _guarded(self, topic: str, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """What fails is tried again at the next pass; the others go on."""
        try:
            await work(*args)
        except SmqError as error:
            self.failures += 1
            log.warning("collect.failed", topic=topic, error=error.code, message=error.message)
        except Exception:
            self.failures += 1
            log.exception("collect.failed", topic=topic)

    # ---- one topic

    async def _of_topic(self, run: TopicRun, topic: Topic) -> None:
        now = self._loop.now()
        looked_at, changes = self._looked.get(topic.uid, (0, -1))
        if now - looked_at >= self._pace.every or changes != run.index_changes:
            await self._retain(run, topic)
            self._looked[topic.uid] = (self._loop.now(), run.index_changes)
        strays_at = self._strays_at.setdefault(topic.uid, now + self._pace.look_every)
        if now >= strays_at:
            self._strays_at[topic.uid] = now + self._pace.look_every
            await self._strays(topic)

    async def _retain(self, run: TopicRun, topic: Topic) -> None:
        now = self._loop.now()
        in_pool, store = self._loop.effects.in_pool, self._loop.store
        # What is known says whether it is worth asking the filer; what the filer says then counts.
        if expired(topic.spec, list(run.sealed.values()), [], now).removals:
            groups = await self._groups.states(run, topic)
            verdict = await in_pool(remove_expired, store, topic, groups, self._begun(topic), now, self._patience)
            if run.topic is not None and run.topic.uid == topic.uid:
                self._tell(run, topic, verdict, now)
        else:
            run.held = {}
        before = now - self._pace.removed_files
        if any(segment.files and segment.removed_at <= before for segment in run.gone.values()):
            done, count = await in_pool(delete_files, store, topic, before, self._patience)
            run.files_deleted([segment.name for segment in done])
            self.files["removed"] += count
            if done:
                log.info("retention.files", topic=topic.name, segments=[it.name for it in done], files=count)

    def _tell(self, run: TopicRun, topic: Topic, verdict: Verdict, now: int) -> None:
        if verdict.held.keys() != run.held.keys():
            groups = sorted({group for names in verdict.held.values() for group in names})
            log.info("retention.held", topic=topic.name, segments=len(verdict.held), groups=groups)
        run.held = verdict.held
        reasons: dict[str, list[Removal]] = {}
        for removal in verdict.removals:
            reasons.setdefault(removal.because, []).append(removal)
            self.removed[topic.name] += 1
            self.removed_bytes[topic.name] += removal.segment.bytes
            if removal.unread:
                log.warning(
                    "retention.unread",
                    topic=topic.name,
                    segment=removal.segment.name,
                    end=removal.segment.end,
                    groups=dict(removal.unread),
                )
        for because, removals in reasons.items():
            names = tuple(removal.segment.name for removal in removals)
            self._loop.note(Decision(now, topic.name, "retention", names, because))
        if verdict.removals:
            run.segments_removed(verdict.removals, now)
            self._loop.kick(run)

    def _begun(self, topic: Topic) -> set[Held]:
        """The segments that the brokers say they hold, those apart that wait for their predecessors."""
        return {
            (broker.replica.incarnation, segment.segment)
            for broker in self._loop.registry.all()
            for segment in broker.status.segments
            if segment.uid == topic.uid and segment.state != "waiting"
        }

    async def _strays(self, topic: Topic) -> None:
        found = await self._loop.effects.in_pool(collect_strays, self._loop.store, topic, self._pace.strays)
        for segment, count in found.deleted.items():
            self.files["stray"] += count
            log.warning(
                "collect.strays", topic=topic.name, segment=segment, files=count, reason="retention removed the segment"
            )
        for name in found.unknown:
            if (topic.uid, name) not in self._unknown:
                self._unknown.add((topic.uid, name))
                log.warning("collect.unknown", topic=topic.name, uid=topic.uid, folder=name, advice="not touched")
        count = await self._loop.effects.in_pool(collect_uploads, self._loop.store, topic, self._pace.strays)
        if count:
            self.files["upload"] += count
            log.info("collect.uploads", topic=topic.name, files=count, reason="old, and no chunk refers to them")

    # ---- deleted topics

    def _topic_removed(self, run: TopicRun) -> None:
        """A topic is wished no more: that is written down, so that the next leader knows it too."""
        if run.topic is not None:
            self._loop.spawn(self._guarded(run.name, self._note, run.topic))
        else:  # the filer may have it from earlier leaders
            self._vanished_at = self._loop.now()

    async def _note(self, topic: Topic) -> None:
        at = self._loop.now()
        await self._loop.effects.in_pool(note_deletion, self._loop.store, topic.name, topic.uid, self._patience, at)

    async def _deleted_topics(self) -> None:
        now = self._loop.now()
        in_pool, store = self._loop.effects.in_pool, self._loop.store
        if now >= self._vanished_at:
            self._vanished_at = again = now + self._pace.every  # should the filer not answer
            for name in await in_pool(note_vanished, store, self._living(), self._loop.owner, now, self._patience):
                log.info("topic.vanished", topic=name, message="deleted while nobody led")
            if self._vanished_at == again:  # no other one was removed meanwhile
                self._vanished_at = now + self._pace.look_every
        if now >= self._deleted_at:
            self._deleted_at = now + self._pace.every
            stay = self._pace.deleted_topics
            for it in await in_pool(collect_deleted, store, self._living(), stay, now, self._patience, self._kept):
                self.files["deleted topic"] += it.files
                log.info(
                    "collect.topic",
                    topic=it.topic,
                    uid=it.uid,
                    files=it.files,
                    reason="the topic was deleted with deletionPolicy Delete",
                )

    def _living(self) -> Living:
        runs = self._loop.topics.values()
        uids = {run.topic.uid for run in runs if run.topic is not None}
        uids |= {run.wish.uid for run in runs if run.wish.uid is not None}
        held = {
            segment.uid
            for broker in self._loop.registry.all()
            if broker.gone is None
            for segment in broker.status.segments
            if segment.state in HOLDING
        }
        return Living(uids, set(self._loop.topics), held, sure=not self._loop.world.problems())
