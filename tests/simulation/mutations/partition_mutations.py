"""Mutations of Kafka's offsets: where partitions begin and end, and how far they jump.

``MUTATIONS`` maps names to functions, as in ``mutations``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import (
    PartitionOffsets,
    SealedPartitions,
    inherited_offsets,
    offsets_from_zero,
)
from smq_core.replica import partition_inheritance
from smq_core.replica.log_entries import Entry
from smq_core.replica.log_state import LogState

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def partitions_begin_at_zero_in_each_segment(patch: Patch) -> None:
    """A segment begins where its predecessors ended."""
    patch.setattr(partition_inheritance, "inherited_offsets", lambda partitions, sealed: offsets_from_zero(partitions))


@mutation
def offsets_do_not_jump_after_a_loss(patch: Patch) -> None:
    """The next message of a partition jumps over what its segments have lost."""

    def without_jumps(partitions: KeyRange, sealed: Iterable[SealedPartitions]) -> PartitionOffsets:
        return replace(inherited_offsets(partitions, sealed), jumps=())

    patch.setattr(partition_inheritance, "inherited_offsets", without_jumps)


@mutation
def a_jump_is_forgotten_with_the_next_segment(patch: Patch) -> None:
    """A partition without a message since a loss still has to jump in the next segment."""

    def without_pending(partitions: KeyRange, sealed: Iterable[SealedPartitions]) -> PartitionOffsets:
        kept = [replace(it, offsets=None if it.offsets is None else replace(it.offsets, jumps=())) for it in sealed]
        return inherited_offsets(partitions, kept)

    patch.setattr(partition_inheritance, "inherited_offsets", without_pending)


@mutation
def a_sealer_does_not_read_where_partitions_end(patch: Patch) -> None:
    """A sealer that walks the chain continues from the ends in its chunks."""

    def apply_chunk(self: LogState, info: ChunkInfo) -> None:
        self.producers.apply_chunk(info)

    patch.setattr(LogState, "apply_chunk", apply_chunk)


@mutation
def followers_do_not_learn_where_partitions_begin(patch: Patch) -> None:
    """The first entry of a segment says where its partitions begin."""
    count = LogState._apply_to_partitions

    def without_starts(self: LogState, entry: Entry) -> None:
        count(self, replace(entry, partition_starts=None))

    patch.setattr(LogState, "_apply_to_partitions", without_starts)
