"""Mutations of publishing by reference, one rule each, which histories with references must detect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.producing.send_queue import SendQueue
from smq_core.replica import segment_replica
from smq_core.replica.log_entries import Entry
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.sealing import chain_sealer
from support.sim.clients import uploads
from support.sim.clients.messages import SimulatedSubBatch

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def a_reference_shares_its_chunk(patch: Patch) -> None:
    """An entry with a reference is a separate chunk, because a file has either rows or a reference."""

    def entries_of_next_chunk(entries: Iterable[Entry], max_bytes: int) -> tuple[Entry, ...]:
        return tuple(entries)

    patch.setattr(segment_replica, "entries_of_next_chunk", entries_of_next_chunk)
    patch.setattr(chain_sealer, "entries_of_next_chunk", entries_of_next_chunk)


@mutation
def a_sealer_merges_references(patch: Patch) -> None:
    """A sealer cuts the log into chunks by the same rule as a primary."""
    patch.setattr(chain_sealer, "entries_of_next_chunk", lambda entries, max_bytes: tuple(entries))


@mutation
def a_reference_is_written_before_what_precedes_it(patch: Patch) -> None:
    """The rows before a reference are flushed first, because chunks are contiguous."""
    original = segment_replica.entries_of_next_chunk

    def entries_of_next_chunk(entries: Iterable[Entry], max_bytes: int) -> tuple[Entry, ...]:
        ready = tuple(entries)
        first = next((entry for entry in ready if entry.batch.reference is not None), None)
        return (first,) if first is not None else original(ready, max_bytes)

    patch.setattr(segment_replica, "entries_of_next_chunk", entries_of_next_chunk)


@mutation
def publish_uploads_of_any_age(patch: Patch) -> None:
    """A primary publishes no upload that garbage collection may delete meanwhile."""
    patch.setattr(uploads, "is_too_old", lambda file, now: False)


@mutation
def collect_uploads_that_chunks_refer_to(patch: Patch) -> None:
    """An upload that a chunk refers to stays, however old it is."""

    def referenced(scenario: Any, segments: Any) -> Any:
        return set()
        yield

    patch.setattr(uploads, "referenced", referenced)


@mutation
def check_a_repeated_reference_again(patch: Patch) -> None:
    """A repeat is in the log, so it is acked whatever has become of its upload."""
    patch.setattr(SegmentReplica, "is_new", lambda self, id_: True)


@mutation
def keep_the_sequences_after_a_rejection(patch: Patch) -> None:
    """A rejected batch leaves its sequence free, and later ones move up."""

    def rejected(self: SendQueue, sequence: int) -> object | None:
        at = next((at for at, sent in enumerate(self.in_flight) if sent.sequence == sequence), None)
        if at is None:
            return None
        sub_batch = self.in_flight[at].sub_batch
        del self.in_flight[at]
        self.to_resend = len(self.in_flight) - at
        self.rejections += 1
        return sub_batch

    patch.setattr(SendQueue, "rejected", rejected)


@mutation
def publish_the_first_rows_after_a_split(patch: Patch) -> None:
    """After a split the rest of an upload is published by the rows of its partitions."""
    original = SimulatedSubBatch.cut

    def cut(self: SimulatedSubBatch, partitions: Any) -> SimulatedSubBatch | None:
        found = original(self, partitions)
        return found._replace(upload=self.upload) if found is not None else None

    patch.setattr(SimulatedSubBatch, "cut", cut)


@mutation
def publish_without_a_check(patch: Patch) -> None:
    """A primary compares a reference with its upload before it publishes it."""

    def rejection_of(store: Any, process: Any, reference: Any) -> Any:
        return None
        yield

    patch.setattr(uploads, "rejection_of", rejection_of)


@mutation
def forget_references_in_the_tail(patch: Patch) -> None:
    """A chunk's metadata has the reference, without which nobody finds its rows."""
    from smq_core.replica.log_entries import ChunkWrite

    original = ChunkWrite.info
    patch.setattr(ChunkWrite, "info", lambda self, *args: replace(original(self, *args), reference=None))
