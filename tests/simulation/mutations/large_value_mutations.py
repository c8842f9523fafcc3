"""Mutations of large values, one rule each, which histories with references and large values must detect.

Those of ``COLLECTION`` break the operator's own collector, which runs in elastic histories.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.file_lists.file_list import FileList
from smq_core.replica.log_entries import ChunkWrite
from smq_operator.cleanup import unreferenced_uploads as collection
from support.sim.clients import large_values

MUTATIONS = MutationTable()
COLLECTION = MutationTable()
mutation, collection_mutation = MUTATIONS.add, COLLECTION.add


@mutation
def write_chunks_without_the_names_of_values(patch: Patch) -> None:
    """A chunk names the objects with values of its rows, because brokers and collectors read no rows."""
    original = ChunkWrite.info
    patch.setattr(ChunkWrite, "info", lambda self, *args: replace(original(self, *args), large_values=()))


@mutation
def publish_values_that_are_about_to_be_collected(patch: Patch) -> None:
    """A primary takes no batch whose large value may be collected before its name is in the chain."""
    patch.setattr(large_values, "is_too_old", lambda file, now: False)


@mutation
def publish_values_without_a_check(patch: Patch) -> None:
    """A primary takes no batch whose large value is missing or too old."""

    def rejection_of(store: Any, process: Any, names: Iterable[str]) -> Any:
        return None
        yield

    patch.setattr(large_values, "rejection_of", rejection_of)


@collection_mutation
def collect_values_that_chunks_name(patch: Patch) -> None:
    """A large value that a chunk or a file list names stays, however old it is."""
    original = collection.referenced

    def referenced(*args: Any, **more: Any) -> set[str]:
        return {name for name in original(*args, **more) if not name.endswith(".value")}

    patch.setattr(collection, "referenced", referenced)


@collection_mutation
def collect_no_values(patch: Patch) -> None:
    """A large value that no message names in the end is collected."""
    patch.setattr(collection.paths, "large_values_folder", collection.paths.uploads_folder)


@collection_mutation
def list_no_values_in_file_lists(patch: Patch) -> None:
    """A segment with a file list is not walked, so its file list names the large values that stay."""
    original = collection.find_file_list

    def find_file_list(*args: Any) -> FileList | None:
        found = original(*args)
        files = tuple(replace(file, large_values=()) for file in found.files) if found is not None else ()
        return replace(found, files=files) if found is not None else None

    patch.setattr(collection, "find_file_list", find_file_list)
