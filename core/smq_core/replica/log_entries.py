"""The values of the segment replica: incoming batches, log entries, acks, replication messages, chunks to write.

All are frozen, and payloads are opaque. Offsets count the messages of one segment from 0; times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from smq_core.model.chunk_info import ChunkInfo, Producers
from smq_core.model.entities import SECOND, Durability, Micros
from smq_core.model.kafka_producers import KafkaBatchId, KafkaProducerKey, KafkaProducers
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionOffsets, PartitionRows
from smq_core.model.reference import Reference

# A chunk takes at most this many bytes from the tail, or ``flush_bytes`` if that is more.
MAX_CHUNK_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """When a primary forgets producers that have no open stream.

    ``idle`` is in microseconds of log time, from a producer's last batch. ``count`` is how many a segment remembers
    before it forgets the ones that disconnected first.

    A chunk has the state of all producers if there are at most ``snapshot_below``, and after ``snapshot_every`` chunks
    that had only what changed.
    """

    count: int = 20_000
    idle: Micros = 7 * 24 * 3600 * SECOND
    snapshot_below: int = 100
    snapshot_every: int = 64


class BatchId(NamedTuple):
    """Identifies a batch: its producer, the producer's epoch, the sequence, and the instance that sent it.

    The sequence counts the producer's batches for this segment, from 0 in each epoch. The instance is the nonce of
    one producer process; it is empty if the producer sent none.
    """

    producer: str
    epoch: int
    sequence: int
    instance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingBatch:
    """A batch as a producer sent it. ``payload`` is opaque.

    With a ``reference`` the rows are in an upload, and ``nbytes`` does not count them. ``large_values`` names the
    objects with values of these rows. ``partition_rows`` is empty unless the segment counts them.

    A batch of a Kafka client has rows of one partition only.
    """

    id: BatchId | KafkaBatchId
    rows: int
    nbytes: int
    partition_min: int
    partition_max: int
    payload: object
    reference: Reference | None = None
    large_values: tuple[str, ...] = ()
    partition_rows: PartitionRows = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A batch in the log, at offsets ``first .. end - 1``. ``appended`` never decreases within a segment.

    An entry also carries what the primary decided about producers just before this batch, so that every replica and
    every sealer computes the same state: ``forgotten`` names producers to drop. ``inherited`` is what the first entry
    of a segment takes over from the predecessors, as ``inherited_kafka_producers``, and ``partition_starts`` is where
    its partitions begin after them.
    """

    first: int
    batch: IncomingBatch
    appended: Micros
    forgotten: tuple[str, ...] = ()
    inherited: Producers | None = None
    partition_starts: PartitionOffsets | None = None
    inherited_kafka_producers: KafkaProducers | None = None

    @property
    def end(self) -> int:
        return self.first + self.batch.rows


@dataclass(frozen=True, slots=True)
class Ack:
    """One batch is durable. ``stream`` is the caller's argument of ``append``.

    ``first_offset`` of a Kafka batch is the Kafka offset of its first record.
    """

    stream: object
    id: BatchId | KafkaBatchId
    first_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationMessage:
    """All entries that one follower still needs, with the current watermark and chain end."""

    base_offset: int
    entries: tuple[Entry, ...]
    watermark: int
    chain_end: int
    credit: int = 0
    """The follower's credit, if the primary's whole tail fits into it; 0 while the tail exceeds a new, lower credit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkWrite:
    """The next chunk. ``entries`` are contiguous from ``first``.

    ``producers`` and ``kafka_producers`` are the whole state at the chunk's end.

    An entry with a reference is alone in its chunk, whose file has no rows.

    ``snapshot_at`` is the first offset of the last chunk that contains the whole state; None if this one should.
    ``partitions`` says where the partitions end after it, if the segment counts their messages.
    """

    first: int
    entries: tuple[Entry, ...]
    producers: Producers
    forgotten_upto: int = 0
    snapshot_at: int | None = None
    partitions: PartitionOffsets | None = None
    kafka_producers: KafkaProducers = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.entries[-1].end

    @property
    def rows(self) -> int:
        return self.end - self.first

    @property
    def reference(self) -> Reference | None:
        """What a reference chunk refers to; None for a chunk with rows."""
        return self.entries[0].batch.reference

    @property
    def changed(self) -> set[str]:
        """The producers whose state changed in this chunk."""
        names = {entry.batch.id.producer for entry in self.entries if isinstance(entry.batch.id, BatchId)}
        for entry in self.entries:
            names.update(entry.forgotten)
            names.update(entry.inherited or ())
        return names

    @property
    def changed_kafka_producers(self) -> KafkaProducers:
        """The Kafka producers whose state changed in this chunk, in the order of their last batches."""
        keys: set[KafkaProducerKey] = set()
        for entry in self.entries:
            keys.update(entry.inherited_kafka_producers or ())
            if isinstance(entry.batch.id, KafkaBatchId):
                keys.add(KafkaProducerKey(entry.batch.id.producer_id, entry.batch.partition_min))
        return {key: state for key, state in self.kafka_producers.items() if key in keys}

    def info(self, segment: str, writer: str, nonce: str, schema_version: int = 0) -> ChunkInfo:
        """The chunk's metadata."""
        info = ChunkInfo(
            segment=segment,
            first=self.first,
            rows=self.rows,
            writer=writer,
            nonce=nonce,
            producers=self.producers,
            forgotten_upto=self.forgotten_upto,
            upload=self.reference.upload if self.reference is not None else None,
            reference=self.reference,
            appended=self.entries[0].appended if self.reference is not None else None,
            schema_version=schema_version,
            large_values=tuple(name for entry in self.entries for name in entry.batch.large_values),
            partitions=self.partitions,
            kafka_producers=self.kafka_producers,
        )
        if self.snapshot_at is None:
            return info
        changed = self.changed
        return replace(
            info,
            producers={name: self.producers[name] for name in changed if name in self.producers},
            snapshot_at=self.snapshot_at,
            forgotten=tuple(sorted(name for name in changed if name not in self.producers)),
            kafka_producers=self.changed_kafka_producers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """The settings that never change for a segment. ``replicas`` are incarnations; the first one is the primary.

    ``flush_max_interval`` is as in the topic's spec. A primary forgets producers beyond ``producer_limits``. With
    ``journal`` an entry counts for the watermark only once it is in this replica's journal. With ``counts_partitions``
    the log has Kafka's offsets, so each batch says how many messages of each partition it has.
    """

    segment: str
    range: KeyRange
    incarnation: str
    replicas: tuple[str, ...]
    durability: Durability
    predecessors: tuple[str, ...] = ()
    flush_bytes: int = 32 * 1024 * 1024
    flush_interval: Micros = 10 * SECOND
    flush_max_interval: Micros | None = None
    producer_limits: ProducerLimits = ProducerLimits()
    journal: bool = False
    counts_partitions: bool = False

    @property
    def is_primary(self) -> bool:
        return self.replicas[0] == self.incarnation

    @property
    def followers(self) -> tuple[str, ...]:
        return self.replicas[1:]
