"""A topic with Kafka's offsets in a store, written without brokers, and the messages that each partition has.

The value of each message is ``<partition>:<offset>`` and padding. It is at the timestamp ``offset`` milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from smq_core.model.chunk_info import ChunkInfo, SealOutcome
from smq_core.model.entities import (
    Layout,
    Phase,
    Reason,
    RemovedSegment,
    Replica,
    SealedSegment,
    Segment,
    Topic,
    TopicSpec,
    range_of,
    segment_name,
)
from smq_core.model.keyspace import KeyRange, Partitioner
from smq_core.model.loss import Loss
from smq_core.model.partition_offsets import inherited_offsets, offsets_from_zero
from smq_core.replica.partition_counter import PartitionCounter
from smq_storage.catalog import layouts, sealed_index
from smq_storage.catalog.sealed_index import SealedRing
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.chunks.schemas import chunk_schema, message_schema
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import write_file_list
from smq_storage.tables.segment_files import StoredSegment
from support.data import uploads
from support.data.stored_segment import file_list_of_chain

HOLDER = Replica("b", "incarnation-b", "127.0.0.1:1")


class CountedTopic:
    """``messages`` has the Kafka offsets of each partition's messages that are in chunks."""

    def __init__(self, store: Store, partitions: int = 4, value_bytes: int = 0) -> None:
        self.store = store
        self.topic = Topic("default/t", "uid-1", TopicSpec(partitions=partitions, partitioner=Partitioner.KAFKA))
        self.messages: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        self._value_bytes = value_bytes
        self._living: dict[str, Segment] = {}
        self._outcomes: dict[str, SealOutcome] = {}
        self._counters: dict[str, PartitionCounter] = {}
        self._at: dict[str, int] = {}
        self._numbers = 0
        self._uploads = 0
        self._layout = Layout(topic=self.topic.name, uid=self.topic.uid, partitions=partitions, writer="w")
        self._etag: str | None = None
        sealed_index.create_first_page(store, self.topic.name, self.topic.uid)

    def open(self, range_: KeyRange | None = None, predecessors: Sequence[str] = ()) -> str:
        """Opens a segment, which begins where its predecessors ended. Returns its name."""
        range_ = range_ or KeyRange(0, self.topic.spec.partitions)
        name = segment_name(self.topic.name, range_, self._numbers)
        before = [self._outcomes[it].sealed_partitions(range_of(it)) for it in predecessors]
        starts = inherited_offsets(range_, before) if predecessors else offsets_from_zero(range_)
        self._counters[name] = PartitionCounter(starts)
        self._at[name] = 0
        self._living[name] = Segment(
            name=name,
            number=self._numbers,
            range=range_,
            phase=Phase.OPEN,
            replicas=(HOLDER,),
            predecessors=tuple(predecessors),
        )
        self._numbers += 1
        self._put_layout()
        return name

    def write(self, segment: str, partitions: Iterable[int]) -> None:
        """A chunk with one message of each of these partitions, in this order."""
        rows = self._rows(segment, partitions)
        info = self._info(segment, rows.num_rows)
        self._chain(segment).put(info, [(rows, self._at[segment])], chunk_schema())
        self._at[segment] = info.end

    def refer(self, segment: str, partitions: Iterable[int], others: int = 0, cut: int = 0) -> None:
        """A reference chunk. The upload has ``others`` messages of the partition before, which other segments have.

        With ``cut`` there are two reference chunks: the first one has that many of the messages.
        """
        ordered, counter = sorted(partitions), self._counters[segment].copy()
        rows = pa.Table.from_batches([self._rows(segment, ordered)])
        range_ = self._living[segment].range
        if others:
            row = {"partition": range_.start - 1, "timestamp": 0, "key": b"", "value": b"other", "headers": None}
            rows = pa.concat_tables([pa.Table.from_pylist([row] * others, schema=message_schema()), rows])
        self._uploads += 1
        written = uploads.write(self.store, self.topic.uid, f"p-{self._uploads}.parquet", rows)
        whole = written.reference(range_)
        for start, stop in ((0, cut), (cut, len(ordered))):
            if start == stop:
                continue
            for partition in ordered[start:stop]:
                counter.append(((partition, 1),))
            info = replace(
                self._info(segment, stop - start),
                partitions=counter.offsets(),
                reference=replace(whole, first_row=whole.first_row + start, rows=stop - start),
                upload=written.name,
                appended=1,
            )
            self._chain(segment).put(info, [], chunk_schema())
            self._at[segment] = info.end

    def skip(self, segment: str, partition: int, messages: int) -> None:
        """Counts messages that no chunk has, as a broken log would."""
        self._counters[segment].append(((partition, messages),))

    def seal(self, segment: str, lost: Loss | None = None, *, uninherited: bool = False) -> None:
        """Writes the seal chunk."""
        at = self._at[segment]
        partitions = None if uninherited else self._counters[segment].offsets()
        before = self._living[segment].predecessors if uninherited else ()
        seal = ChunkInfo(
            segment=segment,
            first=at,
            rows=0,
            writer="w",
            nonce="seal",
            sealed=True,
            partitions=partitions,
            lost=lost,
            uninherited=before,
        )
        self._chain(segment).put_seal(seal)
        # As the successors of a segment see it that has not read its own predecessors.
        self._outcomes[segment] = replace(seal.outcome, partitions=self._counters[segment].offsets())

    def index(self, segment: str, *, file_list: bool = True) -> StoredSegment:
        """Moves a sealed segment from the layout to the index."""
        it = self._living.pop(segment)
        chain = self._chain(segment)
        files = file_list_of_chain(chain, "key")
        assert files is not None
        name, uid = self.topic.name, self.topic.uid
        entry = SealedSegment(
            name=segment,
            number=it.number,
            range=it.range,
            predecessors=it.predecessors,
            end=self._at[segment],
            sealed_because=Reason.ROLL,
            sealed_at=0,
            file_list=write_file_list(self.store, name, uid, files) if file_list else "",
        )
        ring = KeyRange(0, self.topic.spec.partitions)
        outcome = self._outcomes[segment].sealed_partitions(it.range)
        sealed_index.append(self.store, name, uid, [entry], ring=SealedRing(ring, {segment: outcome}))
        self._put_layout()
        return StoredSegment.of(name, uid, entry)

    def remove(self, segment: StoredSegment, messages: dict[int, int]) -> None:
        """As retention does. ``messages`` has the Kafka offsets from which on those of each partition stay."""
        number = int(segment.name.rpartition("-")[2])
        removed = RemovedSegment(name=segment.name, number=number, end=segment.end or 0, removed_at=0)
        sealed_index.remove(self.store, self.topic.name, self.topic.uid, [removed])
        for file in self._chain(segment.name).files():
            self.store.delete(file.path)
        for partition, start in messages.items():
            self.messages[partition] = [it for it in self.messages[partition] if it >= start]

    def range(self, segment: str) -> KeyRange:
        return range_of(segment)

    def end(self, segment: str) -> int:
        """Where it ends as a log."""
        return self._at[segment]

    def stored(self, segment: str) -> StoredSegment:
        """The segment as the index has it now."""
        entries = sealed_index.read(self.store, self.topic.name, self.topic.uid)
        return next(StoredSegment.of(self.topic.name, self.topic.uid, it) for it in entries if it.name == segment)

    def chunks(self, segment: str) -> list[StoredChunk]:
        return list(self._chain(segment).walk_stored())

    def _rows(self, segment: str, partitions: Iterable[int]) -> pa.RecordBatch:
        counter, rows = self._counters[segment], []
        for partition in partitions:
            offset = counter.next_offset(partition)
            counter.append(((partition, 1),))
            self.messages[partition].append(offset)
            value = b"%d:%d" % (partition, offset)
            rows.append(
                {
                    "partition": partition,
                    "timestamp": offset * 1000,
                    "key": b"key-%d" % (offset % 7),
                    "value": value.ljust(self._value_bytes, b"."),
                    "headers": None,
                }
            )
        return pa.RecordBatch.from_pylist(rows, schema=message_schema())

    def _info(self, segment: str, rows: int) -> ChunkInfo:
        at, partitions = self._at[segment], self._counters[segment].offsets()
        return ChunkInfo(segment=segment, first=at, rows=rows, writer="w", nonce=f"n{at}", partitions=partitions)

    def _chain(self, segment: str) -> ChunkChain:
        return ChunkChain(self.store, self.topic.name, self.topic.uid, segment)

    def _put_layout(self) -> None:
        self._layout = replace(
            self._layout,
            version=self._layout.version + 1,
            next_number=self._numbers,
            segments=tuple(self._living.values()),
            writer=f"w{self._layout.version}",
        )
        self._etag = layouts.put_layout(self.store, self._layout, self._etag)
