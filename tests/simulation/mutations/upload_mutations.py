"""Mutations of the collection of uploads by leaders, which elastic histories with references must detect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_operator.cleanup import unreferenced_uploads as collection
from support.sim.clients import uploads

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def collect_old_uploads_whatever_refers_to_them(patch: Patch) -> None:
    """An upload that a chunk refers to stays, however old it is."""
    patch.setattr(collection, "referenced", lambda store, topic, segments: set())


@mutation
def overlook_uploads_that_only_a_file_list_shows(patch: Patch) -> None:
    """A segment with a file list is not walked, so its file list says which uploads stay."""
    original = collection.referenced

    def referenced(store: Any, topic: Any, segments: Any) -> set[str]:
        return original(store, topic, {name: file_list for name, file_list in segments.items() if not file_list})

    patch.setattr(collection, "referenced", referenced)


@mutation
def collect_uploads_of_segments_that_still_have_files(patch: Patch) -> None:
    """The uploads of a removed segment stay as long as its files, because a reader may still be reading it."""
    original = collection.read_consistent

    def read_consistent(store: Any, topic: Any) -> Any:
        known = original(store, topic)
        return replace(known, index=replace(known.index, removed_segments=())) if known is not None else None

    patch.setattr(collection, "read_consistent", read_consistent)


@mutation
def publish_uploads_that_are_about_to_be_collected(patch: Patch) -> None:
    """A primary publishes no upload that garbage collection may delete before the reference is in the chain."""
    patch.setattr(uploads, "is_too_old", lambda file, now: False)
