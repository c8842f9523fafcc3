"""Changes of groups by administrators: positions are set, and groups are deleted, only while nobody reads for them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from smq_core.errors import Conflict, InvalidRequest
from smq_core.kafka_groups.advice import of_kafka_clients
from smq_core.model.entities import Micros, Positions, Topic
from smq_core.reading.consumer_group import Group
from smq_core.reading.segment_dag import ReadProgress
from smq_operator.groups.group_coordinator import GroupCoordinator
from smq_operator.groups.group_losses import losses_before
from smq_operator.groups.idle_groups import GroupSnapshot, next_generation
from smq_operator.groups.kafka_group_lags import KafkaGroupLags
from smq_operator.groups.segment_reach import SegmentReach
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import group_positions as files
from smq_storage.catalog.group_positions import CommittedPositions

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PositionChange:
    """``before`` is None if the group is new."""

    before: Positions | None
    after: Positions
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChanges:
    """Use it on the event loop."""

    groups: GroupCoordinator
    store: StorePool
    clock: Callable[[], Micros]
    reach: SegmentReach
    kafka: KafkaGroupLags

    async def set_positions(
        self, topic: str, name: str, positions: Positions, *, create: bool, dry_run: bool
    ) -> PositionChange:
        """Sets the positions of a group, or creates it there with ``create``. A dry run only checks.

        Raises InvalidRequest if the group has members, does not exist or cannot have these positions; Conflict if
        another leader changes it; Unavailable.
        """
        managed = await self.groups.ready_topic(topic)
        assert managed.topic is not None
        await self.reach.check(managed, positions)
        async with self.groups.without_members(managed, name):
            stored, etag = await self.store.run(files.read_positions, managed.name, managed.topic.uid, name)
            if stored.deleted and not create:
                raise await self._no_such_group(managed.topic, name)
            before = dict(stored.positions) if not stored.deleted else None
            if dry_run:
                return PositionChange(before, positions, stored.generation)
            mine = self._changed(managed, name, positions, stored)
            await self._put(managed.topic, name, mine, etag)
            self.groups.idle.put(managed.topic.uid, _snapshot_of(name, mine))
            new = stored.deleted
            log.info("group.positions_set", topic=managed.name, group=name, generation=mine.generation, new=new)
            return PositionChange(before, mine.positions, mine.generation)

    async def delete(self, topic: str, name: str) -> None:
        """Deletes a group with its positions. Raises as ``set_positions``."""
        managed = await self.groups.ready_topic(topic)
        assert managed.topic is not None
        async with self.groups.without_members(managed, name):
            stored, etag = await self.store.run(files.read_positions, managed.name, managed.topic.uid, name)
            if stored.deleted:
                raise await self._no_such_group(managed.topic, name)
            # This write fails if another leader serves the group by now, so that its members keep their positions.
            generation, now = next_generation(stored.generation), self.clock()
            mine = CommittedPositions(generation=generation, writer=uuid.uuid4().hex, last_active_at=now, deleted=True)
            await self._put(managed.topic, name, mine, etag)
            self.groups.idle.remove(managed.topic.uid, name)
            log.info("group.deleted", topic=managed.name, group=name)

    def _changed(
        self, managed: ManagedTopic, name: str, positions: Positions, stored: CommittedPositions
    ) -> CommittedPositions:
        now = self.clock()
        group = Group(name=name, generation=0, reader=ReadProgress(positions=dict(positions)))
        group.update(managed.nodes(), now, managed.index.removed_intervals)
        # What the group has passed by now counts as known, also where it was set beyond messages that are lost.
        known = losses_before(managed, group, now) | dict(stored.known_losses or {})
        return CommittedPositions(
            generation=next_generation(stored.generation),
            positions=dict(positions),
            writer=uuid.uuid4().hex,
            committed_at=now,
            last_active_at=now,
            known_losses=known,
            epoch=uuid.uuid4().hex,
        )

    async def _no_such_group(self, topic: Topic, name: str) -> InvalidRequest:
        if await self.kafka.has(topic, name):
            return InvalidRequest(of_kafka_clients(topic.name, name))
        shown = topic.name.removeprefix("default/")
        return InvalidRequest(f"{topic.name} has no group {name}; `smq group list {shown}` shows them")

    async def _put(self, topic: Topic, name: str, mine: CommittedPositions, etag: str | None) -> None:
        try:
            await self.store.run(files.put_positions, topic.name, topic.uid, name, mine, etag, self.store.retry_policy)
        except Conflict:
            self.groups.idle.remove(topic.uid, name)
            raise Conflict(f"group {name} is being used through another leader: try again") from None


def _snapshot_of(name: str, written: CommittedPositions) -> GroupSnapshot:
    return GroupSnapshot(
        name=name,
        generation=next_generation(written.generation),
        positions=dict(written.positions),
        committed_at=written.committed_at,
        last_active_at=written.last_active_at,
    )
