"""The groups that are not loaded, because no member has called this leader for a while, as their files have them.

Only the leader writes these files, so what was read once stays right while this leader leads. The files are read again
now and then all the same, for groups that a person restored from a backup.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from smq_core.model.entities import SECOND, Micros, Positions, Topic
from smq_operator.cleanup.document_scan import DocumentScan
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import group_positions as files
from smq_storage.catalog import paths
from smq_storage.catalog.group_positions import CommittedPositions
from smq_storage.object_store.store import Store

RESCAN_INTERVAL: Micros = 600 * SECOND
RETRY_INTERVAL: Micros = 10 * SECOND
# Each leader that loads a group starts at the next thousand, so generations of two leaders never coincide.
GENERATIONS_PER_LEADER = 1000


def next_generation(stored: int) -> int:
    """The generation with which a group begins that is loaded from a file with the generation ``stored``."""
    return (stored // GENERATIONS_PER_LEADER + 1) * GENERATIONS_PER_LEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One group as the leader knows it. ``owners`` is ``{segment: member}``; times are in microseconds, 0 if unknown.

    The generation of a group that is not loaded is the one with which its next assignment begins, or the last one that
    this leader has given out. So a generation that was shown is never followed by a lower one.
    """

    name: str
    generation: int = 0
    positions: Positions = field(default_factory=dict)
    members: tuple[str, ...] = ()
    owners: Mapping[str, str] = field(default_factory=dict)
    committed_at: Micros = 0
    last_active_at: Micros = 0
    unreadable: bool = False
    awaited_commits: Positions = field(default_factory=dict)
    """See ``Group.awaited_commits``."""


class IdleGroups:
    """By uid of the topic. Use it on the event loop."""

    def __init__(self, store: StorePool, clock: Callable[[], Micros]) -> None:
        self._store = store
        self._now = clock
        self._groups: dict[str, dict[str, GroupSnapshot]] = {}
        self._next_scan_at: dict[str, Micros] = {}

    def of(self, uid: str) -> Mapping[str, GroupSnapshot]:
        """What is known of the topic's groups, by name."""
        return self._groups.get(uid, {})

    def put(self, uid: str, group: GroupSnapshot) -> None:
        """The file of this group has just been written, or the group is no longer loaded."""
        self._groups.setdefault(uid, {})[group.name] = group

    def remove(self, uid: str, name: str) -> None:
        """The group was deleted, or what is known of it may be wrong; then the next scan finds it."""
        self._groups.get(uid, {}).pop(name, None)
        self._next_scan_at.pop(uid, None)

    def keep(self, uids: Collection[str]) -> None:
        """Forgets all other topics."""
        self._groups = {uid: groups for uid, groups in self._groups.items() if uid in uids}
        self._next_scan_at = {uid: at for uid, at in self._next_scan_at.items() if uid in uids}

    async def scan_if_due(self, topic: Topic) -> None:
        """Reads the files if they were not read for long. Raises StoreUnavailable, and then tries again later."""
        if self._now() >= self._next_scan_at.get(topic.uid, 0):
            self._next_scan_at[topic.uid] = self._now() + RETRY_INTERVAL
            await self.scan(topic)

    async def scan(self, topic: Topic) -> None:
        """Reads the files of all groups of the topic. Raises StoreUnavailable."""
        before = dict(self.of(topic.uid))
        scan = DocumentScan()
        stored = await self._store.run(read_groups, topic, scan)
        found = {name: _snapshot(name, kept) for name, kept in stored.items()}
        if scan.unavailable:
            kept = {name for name in before if paths.group(topic.name, topic.uid, name) in scan.unavailable}
            found |= {name: before[name] for name in kept}
        # What was put or removed while the files were read is newer.
        now = self.of(topic.uid)
        found |= {name: it for name, it in now.items() if it is not before.get(name)}
        for name in [name for name in before if name not in now]:
            found.pop(name, None)
        self._groups[topic.uid] = found
        self._next_scan_at[topic.uid] = self._now() + (RETRY_INTERVAL if scan.unavailable else RESCAN_INTERVAL)


def read_groups(store: Store, topic: Topic, scan: DocumentScan) -> dict[str, CommittedPositions | None]:
    """What the files of the topic's groups say, by name, without deleted ones; None for one that cannot be read."""
    stored: dict[str, CommittedPositions | None] = {}
    for name in files.list_groups(store, topic.name, topic.uid):
        stored[name] = None
        with scan.document(paths.group(topic.name, topic.uid, name)):
            stored[name], _ = files.read_positions(store, topic.name, topic.uid, name)
    return {name: kept for name, kept in stored.items() if kept is None or not kept.deleted}


def _snapshot(name: str, kept: CommittedPositions | None) -> GroupSnapshot:
    if kept is None:
        return GroupSnapshot(name=name, unreadable=True)
    return GroupSnapshot(
        name=name,
        generation=next_generation(kept.generation),
        positions=dict(kept.positions),
        committed_at=kept.committed_at,
        last_active_at=kept.last_active_at,
    )
