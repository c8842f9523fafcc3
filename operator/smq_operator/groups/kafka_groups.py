"""The groups of Kafka clients, as their documents say. Brokers write these, so they are read whenever they are needed.

A listing says which documents have changed. Only those are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from smq_core.errors import StoreUnavailable
from smq_core.model.entities import SECOND, Micros, Topic
from smq_core.reconcile.kafka_retention import KafkaGroupProgress
from smq_operator.cleanup.document_scan import DocumentQuarantine, DocumentScan
from smq_operator.cleanup.filer_clock import ClockReading, FilerClock
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import paths
from smq_storage.catalog.filer_time import microseconds
from smq_storage.catalog.kafka_groups import StoredKafkaGroup, read_kafka_group_at
from smq_storage.object_store.store import Store

# Listings have seconds. What was written in the second in which it was read may have been written again since.
MODIFIED_RESOLUTION: Micros = 2 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupRecord:
    """What the leader keeps of a document. ``offsets`` are by the topic's uid and by partition.

    ``stored`` has no offsets and members; None if the document cannot be read. Times are in microseconds,
    ``modified_at`` by the filer's clock.
    """

    path: str
    size: int
    modified_at: Micros
    is_current: bool = False
    """Whether a change since would show in the next listing."""
    stored: StoredKafkaGroup | None = None
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    committed_at: Mapping[str, Micros] = field(default_factory=dict)
    """When the group last committed, by the topic's uid."""

    @property
    def name(self) -> str:
        return self.stored.name if self.stored is not None else (paths.group_name(self.path) or self.path)

    @property
    def active_at(self) -> Micros:
        """0 if the time is unknown."""
        return max((self.stored.active_at if self.stored is not None else 0, *self.committed_at.values()))

    def may_read(self, uid: str) -> bool:
        """A group whose document cannot be read may have offsets of any topic."""
        return self.stored is None or uid in self.offsets


class KafkaGroups:
    """See the module's docstring. Use it on the event loop."""

    def __init__(self, store: StorePool, clock: Clock, filer_clock: FilerClock, problems: LeaderProblems) -> None:
        self._store = store
        self._filer_clock = filer_clock
        self._known: Mapping[str, KafkaGroupRecord] = {}
        self._quarantine = DocumentQuarantine(
            problems, clock, "retention keeps everything that Kafka clients may read, for its group"
        )

    async def read(self) -> tuple[list[KafkaGroupRecord], bool]:
        """All groups that are not deleted, and whether each document was read or is skipped for good reason.

        Raises StoreUnavailable.
        """
        clocks, scan = await self._filer_clock.read(), DocumentScan()
        self._known = await self._store.run(_read_changed, self._known, clocks, scan)
        is_complete = self._quarantine.update(scan)
        return [it for it in self._known.values() if it.stored is None or not it.stored.deleted], is_complete

    async def progress(self, topic: Topic, clocks: ClockReading, *, can_be_inactive: bool) -> list[KafkaGroupProgress]:
        """How far the groups have read the topic. Raises StoreUnavailable, also if one document was not returned.

        ``can_be_inactive`` is False if groups may have had no chance to write lately, so all count as active.
        """
        records, is_complete = await self.read()
        if not is_complete:
            raise StoreUnavailable("the filer lists a group of Kafka clients, and does not return it")
        return [
            KafkaGroupProgress(
                it.name, it.offsets.get(topic.uid, {}), _last_active_at(it, clocks) if can_be_inactive else None
            )
            for it in records
            if it.may_read(topic.uid)
        ]


def _last_active_at(record: KafkaGroupRecord, clocks: ClockReading) -> Micros | None:
    """By the leader's clock, as late as both clocks allow. None if it is not known."""
    if not record.active_at:
        return None
    return clocks.leader - clocks.age(record.active_at, record.modified_at)


def _read_changed(
    store: Store, known: Mapping[str, KafkaGroupRecord], clocks: ClockReading, scan: DocumentScan
) -> Mapping[str, KafkaGroupRecord]:
    """All documents by path. Those that have not changed are not read again."""
    found: dict[str, KafkaGroupRecord] = {}
    for listed in store.list(paths.KAFKA_GROUPS):
        before = known.get(listed.path)
        modified_at = microseconds(listed.modified)
        if before is not None and before.is_current and (before.size, before.modified_at) == (listed.size, modified_at):
            found[listed.path] = before
            continue
        record = KafkaGroupRecord(path=listed.path, size=listed.size, modified_at=modified_at)
        found[listed.path] = record
        with scan.document(listed.path):
            stored = read_kafka_group_at(store, listed.path)
            if stored is None:
                del found[listed.path]  # an administrator has deleted the file
                continue
            found[listed.path] = _filled(record, stored, clocks)
    return found


def _filled(record: KafkaGroupRecord, stored: StoredKafkaGroup, clocks: ClockReading) -> KafkaGroupRecord:
    offsets = {
        uid: {partition: it.offset for partition, it in topic.partitions.items()}
        for uid, topic in stored.offsets.items()
    }
    return replace(
        record,
        is_current=clocks.filer - record.modified_at > MODIFIED_RESOLUTION,
        stored=replace(stored, offsets={}, members=()),
        offsets=offsets,
        committed_at={
            uid: max((it.at for it in topic.partitions.values()), default=0) for uid, topic in stored.offsets.items()
        },
    )
