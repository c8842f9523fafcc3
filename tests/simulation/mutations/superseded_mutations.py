"""Mutations of the deletion of superseded chunks, one rule each, which its histories must detect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.entities import SealedSegment
from smq_core.reading.pins import StoredPin
from smq_operator.cleanup import superseded_chunks as cleanup
from smq_operator.cleanup.reader_pins import PinnedFiles
from smq_storage.compaction import superseded_files as files

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def delete_superseded_chunks_at_once(patch: Patch) -> None:
    """Superseded chunks stay for the grace."""
    original = cleanup.next_step

    def next_step(entry: SealedSegment, version: int, age: int, grace: int | None) -> Any:
        return original(entry, version, 1 << 60, grace)

    patch.setattr(cleanup, "next_step", next_step)


@mutation
def take_the_record_of_a_former_file_list(patch: Patch) -> None:
    """Each file list begins the grace anew."""
    original = cleanup.next_step

    def next_step(entry: SealedSegment, *rest: Any) -> Any:
        record = entry.superseded
        known = replace(record, file_list=entry.file_list) if record is not None else None
        return original(replace(entry, superseded=known), *rest)

    patch.setattr(cleanup, "next_step", next_step)


@mutation
def ignore_pins_of_superseded_chunks(patch: Patch) -> None:
    """A pin that is older than the record keeps superseded chunks."""
    patch.setattr(PinnedFiles, "needs_superseded", lambda self, number, since: False)


@mutation
def take_a_renewed_pin_for_a_younger_one(patch: Patch) -> None:
    """A pin is as old as its creation, however often it is renewed."""
    patch.setattr(StoredPin, "created_at", property(lambda self: self.renewed_at))


@mutation
def delete_superseded_chunks_of_a_hosted_segment(patch: Patch) -> None:
    """Superseded chunks stay while a broker has not reported the seal of their segment."""
    original = cleanup.run_pass

    def run_pass(store: Any, topic: Any, entries: Any, hosted: Any, *rest: Any) -> Any:
        return original(store, topic, entries, (), *rest)

    patch.setattr(cleanup, "run_pass", run_pass)


@mutation
def delete_chunks_before_the_walk_passes_over_them(patch: Patch) -> None:
    """The compacted chunk is written before any chunk is deleted."""
    patch.setattr(files, "_replace_first", lambda *args: None)


@mutation
def delete_the_chunk_after_a_merged_file(patch: Patch) -> None:
    """The chunk at the end of a merged file is not superseded. It may be the seal chunk."""

    def superseded_offsets(file: FileEntry, chunks: Iterable[int]) -> list[int]:
        return sorted({first for first in chunks if file.first < first <= file.end})

    patch.setattr(files, "superseded_offsets", superseded_offsets)


@mutation
def delete_chunks_without_a_look_at_the_merged_files(patch: Patch) -> None:
    """No chunk is deleted before all merged files in the file list are known to be there as it says."""
    patch.setattr(files, "_check_file", lambda *args: None)


@mutation
def delete_the_last_superseded_chunk_first(patch: Patch) -> None:
    """A walk that begins at a superseded chunk, by a listing, finds the next one or begins anew."""
    patch.setattr(files, "sorted", lambda found: sorted(found, reverse=True), raising=False)
