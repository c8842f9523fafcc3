"""The frozen values that a chunk's metadata has: its rows, the producers' states, and what a seal fixed.

Sizes are bytes. Offsets count the messages of one segment from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.model.compacted_rows import CompactedRows
from smq_core.model.entities import Micros
from smq_core.model.kafka_producers import KafkaProducers
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_core.model.partition_offsets import PartitionOffsets, SealedPartitions
from smq_core.model.reference import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The state of one producer at one position of the log.

    ``instance`` is the nonce of the process that writes as this producer in this epoch; empty if unknown.
    ``last_sequence`` is -1 if the state was inherited from a predecessor and this log has no batch of it.
    ``recent`` holds the first offsets of the last batches, the newest last: batch ``last_sequence - i`` begins at
    ``recent[-1 - i]``. It has at most ``RECENT_BATCHES`` entries, which limits a producer's batches in flight.
    ``appended`` is when the last batch was appended, to this log or to a predecessor.
    """

    epoch: int
    last_sequence: int
    recent: tuple[int, ...]
    instance: str = ""
    appended: Micros = 0

    def first_offset(self, sequence: int) -> int | None:
        """The first offset of a batch, or None if it is not in the log or older than ``recent``."""
        back = self.last_sequence - sequence
        return self.recent[-1 - back] if 0 <= back < len(self.recent) else None


RECENT_BATCHES = 64

# In place of an instance: several instances used this epoch, so no instance may write in it any more.
CONFLICTING_INSTANCES = "!"


def are_different_instances(a: str, b: str) -> bool:
    """Whether two processes certainly wrote as these instances. An empty instance is unknown and differs from none."""
    return bool(a and b) and a != b


Producers = Mapping[str, ProducerState]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealOutcome:
    """The content of the seal chunk: the segment's end and each producer's last sequence.

    ``forgotten_upto`` is above the first offset of the last batch of every producer that was forgotten.
    ``uninherited`` names predecessors whose producers are not in ``producers``, because the segment ended before a
    batch came: its successors inherit from them directly. ``partitions`` says where the partitions of the segment end;
    None if the topic does not count their messages, and if ``uninherited`` has any. Then ``kafka_producers`` is empty.
    """

    segment: str
    end: int
    producers: Producers = field(default_factory=dict)
    lost: Loss | None = None
    forgotten_upto: int = 0
    uninherited: tuple[str, ...] = ()
    partitions: PartitionOffsets | None = None
    kafka_producers: KafkaProducers = field(default_factory=dict)

    def sealed_partitions(self, range_: KeyRange) -> SealedPartitions:
        """What the segment, which had this range, leaves to its successors."""
        return SealedPartitions(range=range_, offsets=self.partitions, lost=self.lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkInfo:
    """The metadata of one chunk. The next chunk begins at ``first + rows``; a seal chunk has no rows and is the last.

    ``nonce`` is unique for each attempt to write, so that a writer recognises its own object on reading back.
    ``lost`` is what a seal without a replica reports as lost, or as possibly lost.

    A *reference chunk* has a ``reference``: its file has no rows, and the rows are in the upload. All of them were
    appended at the time ``appended``, which other chunks store for each row. Its producer is the one whose last batch
    begins at ``first``. ``upload`` names the upload, too, and garbage collection keeps what it names.

    ``producers`` is the state of producers at the chunk's end. If ``snapshot_at`` is None, it has all of them.
    Otherwise it has those that changed in this chunk, ``forgotten`` names those that were dropped, and the chunk at
    offset ``snapshot_at`` is the last one that has all. ``forgotten_upto`` and ``uninherited`` are as in SealOutcome.
    ``partitions`` says where all partitions of the segment end after this chunk, if the topic counts their messages.
    ``kafka_producers`` has all Kafka producers, or those that changed. No list of dropped ones is needed, because the
    batches decide that.

    ``schema_version`` is the segment's.

    ``large_values`` names the objects with values of these rows. They are deleted with the segment.

    A *compacted chunk* has ``compacted``: its file has no rows, and the rows are in that compacted file. It takes the
    place of the first of the chunks that were merged, when these are deleted, so that a walk goes on after them. It has
    no state of producers, which the seal chunk has.
    """

    segment: str
    first: int
    rows: int
    writer: str
    nonce: str
    sealed: bool = False
    producers: Producers = field(default_factory=dict)
    lost: Loss | None = None
    upload: str | None = None
    snapshot_at: int | None = None
    forgotten: tuple[str, ...] = ()
    forgotten_upto: int = 0
    uninherited: tuple[str, ...] = ()
    schema_version: int = 0
    reference: Reference | None = None
    appended: Micros | None = None
    large_values: tuple[str, ...] = ()
    compacted: CompactedRows | None = None
    partitions: PartitionOffsets | None = None
    kafka_producers: KafkaProducers = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.first + self.rows

    @property
    def outcome(self) -> SealOutcome:
        """What a seal chunk fixed."""
        return SealOutcome(
            segment=self.segment,
            end=self.first,
            producers=self.producers,
            lost=self.lost,
            forgotten_upto=self.forgotten_upto,
            uninherited=self.uninherited,
            partitions=self.partitions,
            kafka_producers=self.kafka_producers,
        )
