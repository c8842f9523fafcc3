"""Coordinates consumer groups: core's Group, with its positions in the filer.

A group is loaded at the first request for it, and its file is written at once under a new generation. From then on, an
earlier leader that still serves the group fails the compare-and-swap of its next commit.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeAlias

import structlog

from smq_core.errors import Conflict, InvalidRequest, StaleGeneration, StoreUnavailable, Unavailable, UnknownTopic
from smq_core.model.entities import SECOND, Micros, Positions, Topic
from smq_core.model.group_start import GroupStart
from smq_core.reading.consumer_group import MEMBER_TIMEOUT, Assignment, Group
from smq_core.reading.segment_dag import ReadProgress
from smq_core.reconcile.retention import GroupProgress
from smq_operator.cleanup.document_scan import DocumentQuarantine, DocumentScan
from smq_operator.groups.group_losses import losses_before
from smq_operator.groups.idle_groups import GroupSnapshot, IdleGroups, next_generation, read_groups
from smq_operator.groups.loaded_group import LoadedGroup
from smq_operator.groups.position_writer import PositionWriter
from smq_operator.groups.segment_reach import SegmentReach
from smq_operator.reconcile.topic_sync import TopicSync
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.catalog import group_positions as files
from smq_storage.catalog.group_positions import CommittedPositions

log = structlog.get_logger(__name__)

# A new leader takes no group for abandoned before this. A member needs a while to find the new address and to call
# there, and what it holds unread must not be removed meanwhile.
REJOIN_TIME: Micros = 5 * MEMBER_TIMEOUT
IDLE_FORGET_AFTER_US = 600_000_000
EXPIRE_INTERVAL_SECONDS = 0.5
# How often the file of a group with members is written, because retention waits for active groups.
TOUCH_INTERVAL_US = 3600_000_000


# Takes in how far a group has read, which may show that a segment has lost messages. It is repeated.
OnPositions: TypeAlias = Callable[[ManagedTopic, str, Positions], object]


class GroupCoordinator:
    """See the module's docstring. Use it on the event loop."""

    def __init__(
        self,
        *,
        topics: TopicDirectory,
        sync: TopicSync,
        store: StorePool,
        tasks: TaskRunner,
        clock: Clock,
        on_positions: OnPositions,
        reach: SegmentReach,
    ) -> None:
        self._topics = topics
        self._reach = reach
        self._on_positions = on_positions
        self._sync = sync
        self._store = store
        self._tasks = tasks
        self._now = clock
        self._groups: dict[tuple[str, str], LoadedGroup] = {}
        self._loading: dict[tuple[str, str], asyncio.Lock] = {}
        self._serving_since: int | None = None
        self._writer = PositionWriter(store, tasks, clock, self._drop_unwritten)
        self.idle = IdleGroups(store, clock)
        self._quarantines: dict[str, DocumentQuarantine] = {}
        """By uid of the topic: the files of groups that cannot be read."""

    # ---- requests of members

    async def join(
        self,
        topic: str,
        name: str,
        member: str,
        start: GroupStart | Positions,
        generation: int,
        ended: Mapping[str, int] | None = None,
    ) -> tuple[str, Assignment]:
        """Adds a member (under a new name if ``member`` is empty), or takes a heartbeat.

        ``start`` is where a new group begins. ``ended`` has the segments of
        which the member has returned every message, and their ends, which it has not committed.
        Raises UnknownTopic, StoreUnavailable, InvalidRequest for positions that no reader can have.
        """
        managed = await self.ready_topic(topic)
        it = await self._current(managed, name, start, generation)
        member = member or f"{name}-{uuid.uuid4().hex[:12]}"
        new = member not in it.group.members
        assignment = it.group.join(member, self._now(), generation, ended)
        if new:
            log.info("group.joined", topic=managed.name, group=name, member=member, generation=assignment.generation)
        return member, assignment

    async def leave(self, topic: str, name: str, member: str) -> None:
        managed = self._topics.topic(topic)
        it = self._groups.get((managed.name, name))
        if it is not None:  # a group that is not loaded has no members
            it.group.leave(member, self._now())

    async def commit(
        self,
        topic: str,
        name: str,
        member: str,
        generation: int,
        positions: Mapping[str, int],
        known_losses: Mapping[str, int] | None = None,
        epoch: str = "",
    ) -> None:
        """Returns when the positions are in the filer.

        ``known_losses`` were reported to the member's program; the group gets no report of them again. Raises
        StaleGeneration, StoreUnavailable, InvalidRequest for a position beyond what can have been read.
        """
        managed = await self.ready_topic(topic)
        await self._reach.check_read(managed, positions)
        it = await self._current(managed, name, None, generation)
        if member in it.group.members and epoch == it.group.epoch:
            # It has read so far, also where the commit comes too late because the segment ended before that.
            self._on_positions(it.managed, name, positions)
        moved = it.group.commit(member, generation, positions, epoch)
        if it.learn(known_losses or {}):
            it.touch_due = True
        elif not moved:
            return
        await self._writer.commit(it)

    async def positions(self, topic: str, name: str) -> Mapping[str, int]:
        """The committed positions; empty for a group that never had members."""
        managed = await self.ready_topic(topic)
        it = self._groups.get((managed.name, name))
        if it is not None:
            return dict(it.group.positions)
        assert managed.topic is not None
        stored, _ = await self._store.run(files.read_positions, managed.name, managed.topic.uid, name)
        return stored.positions

    async def states(self, managed: ManagedTopic, topic: Topic) -> list[GroupProgress]:
        """The progress of all groups of a topic, with durable positions only. Raises StoreUnavailable.

        A group that another leader has loaded since is unloaded here: what this leader knew of it may have been set
        back, and retention would remove what the group reads again.
        """
        scan = DocumentScan()
        stored = await self._store.run(read_groups, topic, scan)
        if not self._quarantine_of(topic).update(scan):
            raise StoreUnavailable(next(iter(scan.unavailable.values())))
        known = {name: _progress(name, kept) for name, kept in stored.items()}
        for (owner, name), it in list(self._groups.items()):
            if owner != topic.name or it.managed is not managed or it.topic.uid != topic.uid:
                continue
            kept = stored.get(name)
            if kept is not None and kept.generation > it.group.generation:
                self._drop(it, self._ownership_lost(it, f"its file has generation {kept.generation}"))
                known[name] = replace(known[name], last_active_at=None)
                continue
            last_active_at = None if it.group.members else max(it.written_at, it.used_at)
            known[name] = GroupProgress(name, dict(it.group.positions), last_active_at)
        if self._members_unknown_for(REJOIN_TIME) > 0:
            return [replace(it, last_active_at=None) for it in known.values()]
        return list(known.values())

    def _members_unknown_for(self, time_to_call: Micros) -> Micros:
        """How much longer a living member may not have called this leader yet, if it takes it ``time_to_call``."""
        if self._serving_since is None:
            return time_to_call
        return self._serving_since + time_to_call - self._now()

    def _quarantine_of(self, topic: Topic) -> DocumentQuarantine:
        if topic.uid not in self._quarantines:
            self._quarantines[topic.uid] = DocumentQuarantine(
                self._tasks.problems,
                self._now,
                "retention keeps all segments that this group may not have read",
                topic.name,
            )
        return self._quarantines[topic.uid]

    def snapshots(self, managed: ManagedTopic) -> dict[str, GroupSnapshot]:
        """The groups of a topic by name: those that are loaded, and the others as far as their files were read."""
        if managed.topic is None:
            return {}
        found = dict(self.idle.of(managed.topic.uid))
        for (owner, name), it in self._groups.items():
            if owner == managed.name and it.managed is managed and it.topic.uid == managed.topic.uid:
                found[name] = it.snapshot()
        return dict(sorted(found.items()))

    async def read_snapshots(self, topic: str, *, again: bool) -> tuple[ManagedTopic, dict[str, GroupSnapshot]]:
        """The same after the files were read: ``again``, or only if that is long ago.

        Raises UnknownTopic, StoreUnavailable.
        """
        managed = await self.ready_topic(topic)
        assert managed.topic is not None
        await (self.idle.scan(managed.topic) if again else self.idle.scan_if_due(managed.topic))
        return managed, self.snapshots(managed)

    @asynccontextmanager
    async def without_members(self, managed: ManagedTopic, name: str) -> AsyncIterator[None]:
        """Keeps members from joining the group within the block, which may write the group's file or delete it.

        The group is not loaded then. Raises InvalidRequest if it has members, Unavailable if this leader has not led
        for long enough to know.
        """
        key = (managed.name, name)
        async with self._loading.setdefault(key, asyncio.Lock()):
            it = self._groups.get(key)
            if it is not None and it.writer is not None and not it.writer.done():
                await asyncio.wait([it.writer])
                it = self._groups.get(key)
            if it is not None:
                it.refresh(self._now())
                if it.group.members:
                    members = ", ".join(sorted(it.group.members))
                    raise InvalidRequest(
                        f"group {name} of {managed.name} has members that read now ({members}), and they would commit "
                        "over the change: stop them first, and wait until `smq group describe` shows none"
                    )
                self._unload(it)
            left = self._members_unknown_for(MEMBER_TIMEOUT)
            if it is None and left > 0:
                raise Unavailable(
                    f"this leader does not know yet whether group {name} has members: "
                    f"try again in {left / SECOND:.0f} s"
                )
            yield

    def loaded(self, topic: str, name: str) -> Group | None:
        """The group if it is loaded."""
        it = self._groups.get((topic, name))
        return it.group if it is not None else None

    def loaded_with_dag(self, managed: ManagedTopic, name: str) -> LoadedGroup | None:
        """The same with the current DAG, and what the leader keeps about it."""
        it = self._groups.get((managed.name, name))
        if it is not None:
            it.refresh(self._now())
        return it

    # ---- loading

    async def ready_topic(self, topic: str) -> ManagedTopic:
        """The topic, once its layout is known."""
        managed = self._topics.topic(topic)
        if managed.topic is None:
            managed = await self._sync.adopted(managed.name)
        try:
            async with asyncio.timeout(5.0):
                while managed.layout is None:
                    await managed.wait_for_change()
                    managed = self._topics.topic(topic)
        except TimeoutError:
            raise StoreUnavailable(
                f"topic {managed.name} has no layout yet: {managed.problem or 'no brokers'}"
            ) from None
        return managed

    async def _current(
        self, managed: ManagedTopic, name: str, start: GroupStart | Positions | None, generation: int
    ) -> LoadedGroup:
        """The group. It is loaded again if the member's generation shows that another leader served it since."""
        it = await self._loaded(managed, name, start)
        if not it.group.is_outdated_by(generation):
            return it
        log.warning(
            "group.generation_stale",
            topic=managed.name,
            group=name,
            known_generation=it.group.generation,
            member_generation=generation,
        )
        self._drop(it, StaleGeneration(f"group {name} was served by another leader: join again"))
        return await self._loaded(managed, name, start)

    async def _loaded(self, managed: ManagedTopic, name: str, start: GroupStart | Positions | None) -> LoadedGroup:
        """The group with the current DAG. ``start``: where a new group begins; None: the group must exist."""
        key = (managed.name, name)
        async with self._loading.setdefault(key, asyncio.Lock()):
            it = self._groups.get(key)
            if it is not None and (
                it.managed is not managed or it.topic.uid != (managed.topic.uid if managed.topic else "")
            ):
                self._drop(it, UnknownTopic(f"topic {managed.name} was deleted and made anew"))
                it = None
            if it is None:
                it = self._groups[key] = await self._load(managed, name, start)
        now = self._now()
        it.used_at = now
        it.refresh(now)
        return it

    async def _load(self, managed: ManagedTopic, name: str, start: GroupStart | Positions | None) -> LoadedGroup:
        assert managed.topic is not None
        topic = managed.topic
        kept, etag_before = await self._store.run(files.read_positions, topic.name, topic.uid, name)
        new = kept.deleted
        if new and start is None:
            raise StaleGeneration(f"group {name} has no members: join first", generation=0)
        generation = next_generation(kept.generation)
        begin = start if new and isinstance(start, Mapping) else kept.positions
        if new and isinstance(start, Mapping):
            await self._reach.check(managed, start)
        latest = await self._latest(managed) if new and start is GroupStart.LATEST else {}
        epoch = uuid.uuid4().hex if new else kept.epoch
        group = Group(name=name, generation=generation, reader=ReadProgress(positions=dict(begin)), epoch=epoch)
        group.update(managed.nodes(), self._now(), managed.index.removed_intervals)
        if new and start is GroupStart.LATEST:
            group.reader.skip_to_latest()
            for segment, upto in latest.items():
                group.reader.advance(segment, upto)
        now = self._now()
        known_losses = dict(kept.known_losses) if kept.known_losses is not None else {}
        if kept.known_losses is None:
            starts_later = new and start is not GroupStart.EARLIEST
            known_losses = losses_before(managed, group, now if starts_later else kept.committed_at)
        mine = CommittedPositions(
            generation=generation,
            positions=group.reader.committed(),
            writer=uuid.uuid4().hex,
            committed_at=kept.committed_at,
            last_active_at=now,
            known_losses=known_losses,
            epoch=group.epoch,
        )
        etag = await self._store.run(
            files.put_positions, topic.name, topic.uid, name, mine, etag_before, self._store.retry_policy
        )
        log.info("group.loaded", topic=topic.name, group=name, generation=generation, new=new)
        return LoadedGroup(
            managed=managed,
            topic=topic,
            group=group,
            etag=etag,
            committed_at=kept.committed_at,
            written_at=now,
            known_losses=known_losses,
        )

    async def _latest(self, managed: ManagedTopic) -> dict[str, int]:
        """Up to where living segments can be read now. Reports are a second old, so brokers are polled."""
        reconciler, layout = managed.reconciler, managed.layout
        if reconciler is None or layout is None:
            return {}
        return reconciler.watermarks | await self._reach.poll(managed, layout.segments)

    def _ownership_lost(self, it: LoadedGroup, because: str) -> StaleGeneration:
        log.warning("group.ownership_lost", topic=it.topic.name, group=it.group.name, message=because)
        return StaleGeneration(f"group {it.group.name} is served by another leader: join again")

    def _unload(self, it: LoadedGroup) -> None:
        """Unloads a group without members and without anything to write. It is still known."""
        self._drop(it, Conflict("not used"))
        self.idle.put(it.topic.uid, it.snapshot())

    def _drop(self, it: LoadedGroup, why: Exception) -> None:
        """Unloads the group; its members have to join again. A PUT in flight answers its commits when it is done."""
        key = (it.topic.name, it.group.name)
        if self._groups.get(key) is it:  # otherwise the group was loaded anew, and that one stays
            del self._groups[key]
            self.idle.remove(it.topic.uid, it.group.name)
        it.answer_waiting(why)

    def _drop_unwritten(self, it: LoadedGroup, error: Exception) -> None:
        """Its positions cannot be written here any more."""
        lost = isinstance(error, Conflict | UnknownTopic)
        why = self._ownership_lost(it, str(error)) if lost else error
        it.answer_in_flight(why)
        self._drop(it, why)

    # ---- time

    def compensate_pause(self, microseconds: int) -> None:
        """This process was paused for that time, so no heartbeat could arrive."""
        if self._serving_since is not None:
            self._serving_since += microseconds
        for it in self._groups.values():
            it.group.compensate_pause(microseconds)

    async def run(self) -> None:
        """Expires members, follows the DAG without requests, and unloads unused groups, until it is cancelled."""
        if self._serving_since is None:
            self._serving_since = self._now()
        while True:
            await asyncio.sleep(EXPIRE_INTERVAL_SECONDS)
            now = self._now()
            for it in list(self._groups.values()):
                try:
                    self._check(it, now)
                except Exception as error:  # its members join again; the other groups are not affected
                    self._tasks.record_failure("groups", error)
                    self._drop(it, StaleGeneration(f"group {it.group.name} failed in the leader: join again"))

    def _check(self, it: LoadedGroup, now: int) -> None:
        if it.managed.deleted:
            self._drop(it, UnknownTopic(f"topic {it.topic.name} was deleted"))
            return
        it.refresh(now)
        self._on_positions(it.managed, it.group.name, it.group.positions)
        members = bool(it.group.members)
        if (it.had_members and not members) or (members and now - it.written_at > TOUCH_INTERVAL_US):
            it.touch_due = True
            self._writer.start(it)
        it.had_members = members
        if not it.group.members and not it.group.pending and now - it.used_at > IDLE_FORGET_AFTER_US:
            self._unload(it)


def _progress(name: str, kept: CommittedPositions | None) -> GroupProgress:
    """That of a group by its file. One without a time of last activity counts as active.

    One whose file cannot be read (None) has read nothing, so retention keeps everything for it.
    """
    return (
        GroupProgress(name, kept.positions, kept.last_active_at or None)
        if kept is not None
        else GroupProgress(name, {})
    )
