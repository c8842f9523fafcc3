"""Mutations of file lists, one rule each, which elastic histories must detect. See ``protocol_mutations``."""

from __future__ import annotations

from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.file_lists.file_list import FileList
from smq_core.file_lists.file_list_draft import FileListDraft
from smq_operator.cleanup import orphaned_files
from smq_operator.cleanup import retention as retain
from smq_operator.file_lists import topic_file_lists
from smq_operator.file_lists.topic_file_lists import TopicFileLists
from smq_storage.catalog import paths
from smq_storage.tables.file_lists import read_file_list

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def name_a_file_list_that_was_not_written(patch: Patch) -> None:
    """A file list is in the store before the index names it."""

    def write(store: Any, topic: str, uid: str, file_list: Any, retry_policy: Any) -> str:
        return paths.file_list_name(file_list.segment, file_list.version, file_list.nonce)

    patch.setattr(topic_file_lists, "write_file_list", write)


@mutation
def name_whatever_version_0_lists(patch: Patch) -> None:
    """A broker that has not seen the whole chain writes no file list, and the leader names none of another end."""

    def file_list(self: FileListDraft, end: int) -> FileList | None:
        return FileList(segment=self.segment, end=self.end, files=tuple(self._files))

    def read(self: TopicFileLists, store: Any, entry: Any, name: str) -> Any:
        return read_file_list(store, self._topic.name, self._topic.uid, name)

    patch.setattr(FileListDraft, "file_list", file_list)
    patch.setattr(TopicFileLists, "_read", read)


@mutation
def leave_all_file_lists_to_the_brokers(patch: Patch) -> None:
    """The leader builds the file lists that no broker writes."""
    patch.setattr(TopicFileLists, "_is_overdue", lambda self, entry, now: False)


@mutation
def build_a_damaged_file_list_under_its_own_name(patch: Patch) -> None:
    """A version 0 that cannot be read is built again under the next version."""
    patch.setattr(topic_file_lists, "replace", lambda file_list, **changes: file_list)


@mutation
def never_read_a_file_list_again(patch: Patch) -> None:
    """A file list that was damaged after it was named is noticed."""
    original = TopicFileLists._due

    def due(self: TopicFileLists, entries: Any, now: int) -> Any:
        return [entry for entry in original(self, entries, now) if not entry.file_list]

    patch.setattr(TopicFileLists, "_due", due)


@mutation
def collect_file_lists_that_the_index_names(patch: Patch) -> None:
    """Only a file list that no index can name any more is orphaned."""
    patch.setattr(orphaned_files, "_is_orphaned_file_list", lambda path, known: True)


@mutation
def keep_the_file_lists_of_removed_segments(patch: Patch) -> None:
    """A file list that lands after its segment's files were deleted is collected."""
    patch.setattr(orphaned_files, "_is_orphaned_file_list", lambda path, known: False)


@mutation
def delete_the_file_list_before_the_files(patch: Patch) -> None:
    """A segment's file list is deleted after its files, because it says which files there are."""
    original = retain.delete_segment

    def delete_segment(store: Any, topic: Any, segment: Any) -> int:
        for name in filter(None, [segment.file_list]):
            store.delete(paths.file_list(topic.name, topic.uid, name))
        return original(store, topic, segment)

    patch.setattr(retain, "delete_segment", delete_segment)
