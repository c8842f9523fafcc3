"""What a log says at one of its positions: of its producers, of those of Kafka, and where its partitions end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.model.partition_offsets import PartitionOffsets
from smq_core.replica.kafka_producer_map import KafkaProducerMap
from smq_core.replica.log_entries import ChunkWrite, Entry, ProducerLimits
from smq_core.replica.partition_counter import PartitionCounter
from smq_core.replica.producer_map import ProducerMap


@dataclass(slots=True)
class LogState:
    """It is computed from the log alone, so replicas and sealers agree on it. Only one caller at a time may use it.

    ``partitions`` is None if the topic does not count the messages of its partitions, and before the first entry or
    chunk if a segment has predecessors that were not read.
    """

    producers: ProducerMap = field(default_factory=ProducerMap)
    partitions: PartitionCounter | None = None
    kafka_producers: KafkaProducerMap = field(default_factory=KafkaProducerMap)

    def apply(self, entry: Entry) -> None:
        """Moves on to the end of this entry."""
        self.producers.apply(entry)
        self._apply_to_partitions(entry)

    def apply_all(self, entries: Sequence[Entry]) -> None:
        """Applies the entries in turn. Faster than many calls of ``apply``."""
        self.producers.apply_all(entries)
        for entry in entries:
            self._apply_to_partitions(entry)

    def apply_chunk(self, info: ChunkInfo) -> None:
        """Moves on to the end of a chunk that was read from the filer."""
        self.producers.apply_chunk(info)
        if info.snapshot_at is None:
            self.kafka_producers = KafkaProducerMap(info.kafka_producers)
        else:
            self.kafka_producers.apply_changes(info.kafka_producers)
        if info.partitions is not None:
            self.partitions = PartitionCounter(info.partitions)

    def partition_offsets(self) -> PartitionOffsets | None:
        return None if self.partitions is None else self.partitions.offsets()

    def copy(self) -> LogState:
        partitions = None if self.partitions is None else self.partitions.copy()
        return LogState(self.producers.copy(), partitions, self.kafka_producers.copy())

    def _apply_to_partitions(self, entry: Entry) -> None:
        if entry.partition_starts is not None:
            self.partitions = PartitionCounter(entry.partition_starts)
        if entry.inherited_kafka_producers is not None:
            self.kafka_producers.inherit(entry.inherited_kafka_producers)
        if self.partitions is None:
            return
        batch = entry.batch
        if isinstance(batch.id, KafkaBatchId):
            partition = batch.partition_min
            self.kafka_producers.append(
                batch.id,
                partition,
                records=batch.rows,
                offset=self.partitions.next_offset(partition),
                appended=entry.appended,
            )
        self.partitions.append(batch.partition_rows)


class ChainState:
    """The state at the end of a segment's chain, as the primary writes it into the next chunk.

    It decides which chunks are snapshots: they have the state of all producers, the others only what has changed.
    """

    def __init__(self, limits: ProducerLimits, at_start: LogState) -> None:
        self._limits = limits
        self._at_chain_end = at_start
        self._snapshot_at: int | None = None
        self._chunks_since_snapshot = 0

    def next_chunk(self, first: int, entries: tuple[Entry, ...]) -> ChunkWrite:
        """The chunk of these entries, which begin at the chain's end, with the state after them."""
        after = self._at_chain_end.copy()
        after.apply_all(entries)
        producers = after.producers
        count = len(producers) + len(after.kafka_producers)
        complete = count <= self._limits.snapshot_below or self._chunks_since_snapshot >= self._limits.snapshot_every
        return ChunkWrite(
            first=first,
            entries=entries,
            producers=producers.snapshot(),
            forgotten_upto=producers.forgotten_upto,
            snapshot_at=None if complete else self._snapshot_at,
            partitions=after.partition_offsets(),
            kafka_producers=after.kafka_producers.snapshot(),
        )

    def chunk_written(self, chunk: ChunkWrite) -> None:
        """The chunk is certainly in the filer. It begins where the chain ended."""
        partitions = None if chunk.partitions is None else PartitionCounter(chunk.partitions)
        self._at_chain_end = LogState(
            ProducerMap.of_snapshot(chunk.producers, chunk.forgotten_upto),
            partitions,
            KafkaProducerMap(chunk.kafka_producers),
        )
        if chunk.snapshot_at is None:
            self._snapshot_at, self._chunks_since_snapshot = chunk.first, 0
        self._chunks_since_snapshot += 1

    def chain_extended(self, entries: Sequence[Entry]) -> None:
        """These entries are in the chain now, in chunks that another replica has written."""
        self._at_chain_end.apply_all(entries)

    def at_chain_end(self) -> LogState:
        return self._at_chain_end.copy()
