"""Consumer groups as the leader runs them: core's Group with its positions in the filer.

A group is loaded when somebody first asks for it, and its file is written at once, under a new generation: from then on
an earlier leader that still serves it loses the compare-and-swap at its next commit. At most one PUT per group is in
flight; commits that come meanwhile share the next one, and each is answered when its PUT is done.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from smq_core.dag import Reader
from smq_core.errors import Conflict, StaleGeneration, StoreUnavailable, UnknownTopic
from smq_core.groups import Assignment, Group
from smq_core.model import RemovedSegment, Topic
from smq_core.retention import GroupState
from smq_operator.loop import LeaderLoop
from smq_operator.topic import TopicRun
from smq_storage import groups as files
from smq_storage.conditional import Patience
from smq_storage.groups import CommittedPositions
from smq_storage.store import Store

log = structlog.get_logger()

GENERATIONS_PER_LEADER = 1000
"""Each leader that loads a group begins a new thousand: its generations are never mistaken for an earlier one's."""
WRITE_AGAIN_AFTER = 0.5
FORGET_AFTER = 600_000_000
EXPIRE_EVERY = 0.5
TOUCH_AFTER = 3600_000_000
"""So often a group with members says in its file that it is there: retention waits for it."""


@dataclass(slots=True)
class GroupRun:
    """One loaded group."""

    run: TopicRun
    topic: Topic
    group: Group
    etag: str
    written: set[str] = field(default_factory=set)
    """Writers of PUTs whose outcome is not known: one of them in the file is this leader's own."""
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    writer: asyncio.Task[None] | None = None
    dag: object = None
    used_at: int = 0
    committed_at: int = 0
    written_at: int = 0
    had_members: bool = False
    touch: bool = False
    """The file is to be written although nothing was committed: it says when the group was last seen."""


class Groups:
    """See the module's docstring. Use it on the event loop."""

    def __init__(self, loop: LeaderLoop, patience: Patience) -> None:
        self._loop = loop
        self._patience = patience
        self._groups: dict[tuple[str, str], GroupRun] = {}
        self._loading: dict[tuple[str, str], asyncio.Lock] = {}

    # ---- what members ask

    async def join(self, topic: str, name: str, member: str, start: str, generation: int) -> tuple[str, Assignment]:
        """A new member (``member`` empty: it is given a name) or a heartbeat. Raises UnknownTopic, StoreUnavailable."""
        run = await self._led(topic)
        it = await self._current(run, name, start, generation)
        member = member or f"{name}-{uuid.uuid4().hex[:12]}"
        new = member not in it.group.members
        assignment = it.group.join(member, self._loop.now(), generation)
        if new:
            log.info("group.joined", topic=run.name, group=name, member=member, generation=assignment.generation)
        return member, assignment

    async def leave(self, topic: str, name: str, member: str) -> None:
        run = self._loop.topic(topic)
        it = self._groups.get((run.name, name))
        if it is not None:  # a group that is not loaded has no members
            it.group.leave(member, self._loop.now())

    async def commit(self, topic: str, name: str, member: str, generation: int, positions: Mapping[str, int]) -> None:
        """Returns when the positions are in the filer. Raises StaleGeneration, StoreUnavailable."""
        it = await self._current(await self._led(topic), name, None, generation)
        if not it.group.commit(member, generation, positions):
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        it.waiters.append(done)
        self._write(it)
        await done

    async def positions(self, topic: str, name: str) -> Mapping[str, int]:
        """The committed positions; a group that nobody ever was in has none."""
        run = await self._led(topic)
        it = self._groups.get((run.name, name))
        if it is not None:
            return dict(it.group.positions)
        assert run.topic is not None
        found = await self._loop.effects.in_pool(files.read_positions, self._loop.store, run.name, run.topic.uid, name)
        return found[0].positions if found is not None else {}

    async def states(self, run: TopicRun, topic: Topic) -> list[GroupState]:
        """All groups of a topic as retention sees them; their positions are durable. Raises StoreUnavailable."""
        in_pool, store = self._loop.effects.in_pool, self._loop.store
        known = await in_pool(_read_all, store, topic)
        for (owner, name), it in self._groups.items():
            if owner == topic.name and it.run is run and it.topic.uid == topic.uid:
                seen_at = None if it.group.members else max(it.written_at, it.used_at)
                known[name] = GroupState(name, dict(it.group.positions), seen_at)
        return list(known.values())

    async def losses(self, topic: str, name: str) -> list[tuple[RemovedSegment, int, bool]]:
        """What retention removed before the group had read it: the segment, from which offset, and whether the group
        has committed since."""
        run = await self._led(topic)
        mine = [segment for segment in run.gone.values() if name in segment.unread]
        if not mine:
            return []
        it = self._groups.get((run.name, name))
        if it is not None:
            committed_at, positions = it.committed_at, dict(it.group.positions)
        else:
            assert run.topic is not None
            found = await self._loop.effects.in_pool(
                files.read_positions, self._loop.store, run.name, run.topic.uid, name
            )
            committed_at, positions = (found[0].committed_at, dict(found[0].positions)) if found else (0, {})
        told = []
        for segment in mine:
            start = max(segment.unread[name], positions.get(segment.name, 0))
            if start < segment.end:
                told.append((segment, start, committed_at > segment.removed_at))
        return told

    async def names(self, topic: str) -> list[str]:
        """The groups of a topic: those that are served now and those that have a file."""
        run = await self._led(topic)
        assert run.topic is not None
        found = await self._loop.effects.in_pool(files.list_groups, self._loop.store, run.name, run.topic.uid)
        return sorted({*found, *(name for owner, name in self._groups if owner == run.name)})

    def served(self, topic: str, name: str) -> Group | None:
        """The group, when it is loaded."""
        it = self._groups.get((topic, name))
        return it.group if it is not None else None

    # ---- loading

    async def _led(self, topic: str) -> TopicRun:
        """The topic when its layout is known."""
        run = self._loop.topic(topic)
        if run.topic is None:
            run = await self._loop.adopted(run.name)
        try:
            async with asyncio.timeout(5.0):
                while run.layout is None:
                    await run.change()
                    run = self._loop.topic(topic)
        except TimeoutError:
            raise StoreUnavailable(f"topic {run.name} has no layout yet: {run.problem or 'no brokers'}") from None
        return run

    async def _current(self, run: TopicRun, name: str, start: str | None, generation: int) -> GroupRun:
        """The group; loaded again when the member's generation shows that another leader served it since."""
        it = await self._loaded(run, name, start)
        if not it.group.outdated_by(generation):
            return it
        log.warning("group.outdated", topic=run.name, group=name, mine=it.group.generation, told=generation)
        self._drop(it, StaleGeneration(f"group {name} was served by another leader: join again"))
        return await self._loaded(run, name, start)

    async def _loaded(self, run: TopicRun, name: str, start: str | None) -> GroupRun:
        """The group with what is known of the DAG now. ``start``: where a new one begins; None: it must be there."""
        key = (run.name, name)
        async with self._loading.setdefault(key, asyncio.Lock()):
            it = self._groups.get(key)
            if it is not None and (it.run is not run or it.topic.uid != (run.topic.uid if run.topic else "")):
                self._drop(it, UnknownTopic(f"topic {run.name} was deleted and made anew"))
                it = None
            if it is None:
                it = self._groups[key] = await self._load(run, name, start)
        now = self._loop.now()
        it.used_at = now
        self._refresh(it, now)
        return it

    async def _load(self, run: TopicRun, name: str, start: str | None) -> GroupRun:
        assert run.topic is not None
        topic, store, in_pool = run.topic, self._loop.store, self._loop.effects.in_pool
        found = await in_pool(files.read_positions, store, topic.name, topic.uid, name)
        if found is None and start is None:
            raise StaleGeneration(f"group {name} has no members: join first", generation=0)
        kept = found[0] if found is not None else CommittedPositions(0)
        generation = (kept.generation // GENERATIONS_PER_LEADER + 1) * GENERATIONS_PER_LEADER
        group = Group(name, generation, Reader(positions=dict(kept.positions)))
        group.update(run.nodes(), self._loop.now(), run.removed_numbers)
        if found is None and start == "latest":
            group.reader.skip_to_latest()
            for segment, watermark in run.leader.watermarks.items() if run.leader is not None else ():
                group.reader.advance(segment, watermark)
        now = self._loop.now()
        mine = CommittedPositions(
            generation, group.reader.committed(), uuid.uuid4().hex, committed_at=kept.committed_at, seen_at=now
        )
        etag = await in_pool(
            files.put_positions, store, topic.name, topic.uid, name, mine, found[1] if found else None, self._patience
        )
        log.info("group.loaded", topic=topic.name, group=name, generation=generation, new=found is None)
        return GroupRun(run, topic, group, etag, committed_at=kept.committed_at, written_at=now)

    def _refresh(self, it: GroupRun, now: int) -> None:
        gone = it.group.expire(now)
        if gone:
            log.info("group.expired", topic=it.topic.name, group=it.group.name, members=gone)
        leader = it.run.leader
        if leader is None or leader.layout is None:
            return
        known = (leader.etag, it.run.index_changes, leader.sealed_count())
        if known != it.dag:
            it.group.update(it.run.nodes(), now, it.run.removed_numbers)
            it.dag = known

    def _drop(self, it: GroupRun, why: Exception) -> None:
        """Forgets the group; its members have to join again."""
        self._groups.pop((it.topic.name, it.group.name), None)
        for waiter in it.waiters:
            if not waiter.done():
                waiter.set_exception(why)
        it.waiters.clear()

    # ---- writing

    def _write(self, it: GroupRun) -> None:
        if it.writer is None or it.writer.done():
            it.writer = self._loop.spawn(self._write_all(it))

    async def _write_all(self, it: GroupRun) -> None:
        while it.group.pending or it.touch:
            waiters, it.waiters = it.waiters, []
            now = self._loop.now()
            committed_at, it.touch = now if it.group.pending else it.committed_at, False
            mine = CommittedPositions(
                it.group.generation, it.group.flushing(), uuid.uuid4().hex, committed_at=committed_at, seen_at=now
            )
            try:
                await self._put(it, mine)
            except (Conflict, UnknownTopic) as error:
                log.warning("group.lost", topic=it.topic.name, group=it.group.name, message=error.message)
                it.waiters += waiters
                self._drop(it, StaleGeneration(f"group {it.group.name} is served by another leader: join again"))
                return
            except Exception as error:
                it.group.flush_failed()
                _settle(waiters, error)
                await asyncio.sleep(WRITE_AGAIN_AFTER)
            else:
                it.group.flushed(self._loop.now())
                it.committed_at, it.written_at = committed_at, now
                _settle(waiters, None)

    async def _put(self, it: GroupRun, mine: CommittedPositions) -> None:
        store, topic, name, in_pool = self._loop.store, it.topic, it.group.name, self._loop.effects.in_pool
        if it.written:
            # An earlier PUT ended without a clear answer: it may be what is there now.
            found = await in_pool(files.read_positions, store, topic.name, topic.uid, name)
            if found is not None and found[0].writer in it.written:
                it.etag = found[1]
        it.written.add(mine.writer)
        it.etag = await in_pool(files.put_positions, store, topic.name, topic.uid, name, mine, it.etag, self._patience)
        it.written.clear()

    # ---- time

    async def keep(self) -> None:
        """Expires members and takes in news of the DAG even when nobody asks; forgets groups that are not used."""
        while True:
            await asyncio.sleep(EXPIRE_EVERY)
            now = self._loop.now()
            for it in list(self._groups.values()):
                if it.run.removed:
                    self._drop(it, UnknownTopic(f"topic {it.topic.name} was deleted"))
                    continue
                self._refresh(it, now)
                members = bool(it.group.members)
                if (it.had_members and not members) or (members and now - it.written_at > TOUCH_AFTER):
                    it.touch = True
                    self._write(it)
                it.had_members = members
                if not it.group.members and not it.group.pending and now - it.used_at > FORGET_AFTER:
                    self._drop(it, Conflict("not used"))


def _read_all(store: Store, topic: Topic) -> dict[str, GroupState]:
    """The groups that have a file. One whose file does not say when it was seen counts as living."""
    states = {}
    for name in files.list_groups(store, topic.name, topic.uid):
        found = files.read_positions(store, topic.name, topic.uid, name)
        if found is not None:
            states[name] = GroupState(name, found[0].positions, found[0].seen_at or None)
    return states


def _settle(waiters: list[asyncio.Future[None]], error: Exception | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue  # whoever waited has gone
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
