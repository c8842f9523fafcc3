"""What a group has lost: what retention removed before it was read, and what went with all replicas of a segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from smq_core.model.loss import Loss
from smq_core.reading.consumer_group import Group
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import group_positions as files

if TYPE_CHECKING:
    from smq_operator.groups.group_coordinator import GroupCoordinator


@dataclass(frozen=True, slots=True)
class GroupLosses:
    """Use it on the event loop. Every method raises UnknownTopic and StoreUnavailable."""

    groups: GroupCoordinator
    store: StorePool

    async def with_replicas(self, topic: str, name: str) -> list[tuple[str, Loss]]:
        """What was lost in segments that the group has passed, by segment, as far as the group does not know it.

        A member that reads such a segment to its end finds the loss there; this is for members that come later.
        """
        managed = await self.groups.ready_topic(topic)
        lossy = managed.losses()
        it = self.groups.loaded_with_dag(managed, name) if lossy else None
        if it is None:  # a group that is not loaded has no members
            return []
        losses = []
        for name_of_segment, lost in lossy.items():
            known_upto = it.known_losses.get(name_of_segment)
            if it.group.reader.is_read(name_of_segment) and (known_upto is None or known_upto < lost.stop):
                start = lost.start if known_upto is None else max(lost.start, known_upto)
                losses.append((name_of_segment, replace(lost, start=start)))
        return losses

    async def by_retention(self, topic: str, name: str) -> list[tuple[str, Loss, bool]]:
        """What retention removed before the group had read it.

        Each entry is the segment, its loss, and whether the group has committed since.
        """
        managed = await self.groups.ready_topic(topic)
        mine = [segment for segment in managed.index.removed_segments.values() if name in segment.unread]
        if not mine:
            return []
        it = self.groups.loaded_with_dag(managed, name)
        if it is not None:
            committed_at, positions = it.committed_at, dict(it.group.positions)
        else:
            assert managed.topic is not None
            stored, _ = await self.store.run(files.read_positions, managed.name, managed.topic.uid, name)
            committed_at, positions = stored.committed_at, dict(stored.positions)
        losses = []
        for segment in mine:
            start = max(segment.unread[name], positions.get(segment.name, 0))
            if start < segment.end:
                losses.append((segment.name, Loss(start, segment.end), committed_at > segment.removed_at))
        return losses


def losses_before(managed: ManagedTopic, group: Group, time: int) -> dict[str, int]:
    """The losses of segments that the group had passed before this time: a group that starts later never had them."""
    return {
        entry.name: entry.lost.stop
        for entry in managed.index.sealed.values()
        if entry.lost is not None and entry.sealed_at < time and group.reader.is_read(entry.name)
    }
