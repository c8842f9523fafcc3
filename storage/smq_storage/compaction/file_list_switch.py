"""Plans the compaction of a sealed segment, and lets its readers use the merged files.

One compare-and-swap of the index names the next file list. It fails if retention removed the segment meanwhile, or if
somebody else compacted it. Then nobody reads the merged files, and they are deleted with the segment.
"""

from __future__ import annotations

from collections.abc import Collection

from smq_core.errors import DataLost
from smq_core.file_lists.compaction_plan import FileRun, plan_compaction, with_merged_files
from smq_core.file_lists.file_list import FileEntry, FileList
from smq_core.file_lists.small_files import SmallFilePolicy
from smq_storage.catalog import paths, sealed_index
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import write_file_list
from smq_storage.tables.segment_files import StoredSegment, load_file_list

# The size of a merged file. To read a part of it in the order of offsets, a consumer decodes all of it.
TARGET_BYTES = 32 * 1024 * 1024


def plan_segment(store: Store, segment: StoredSegment, target_bytes: int = TARGET_BYTES) -> list[FileRun]:
    """What to merge; nothing if the segment has no file list (yet).

    Uploads stay as they are: they are large, and other segments may have rows in them. Raises CorruptDocument,
    StoreUnavailable.
    """
    file_list = load_file_list(store, segment)
    if file_list is None:
        return []
    return plan_compaction(file_list.files, target_bytes, lambda file: not paths.is_upload(file.path))


def plan_small_files(file_list: FileList, policy: SmallFilePolicy) -> list[FileRun]:
    """What the leader merges of these files. Uploads stay, and so does what was merged before, by whomever."""
    return policy.plan(file_list.files, lambda it: not paths.is_upload(it.path) and not paths.is_compacted(it.path))


def switch_file_list(
    store: Store, segment: StoredSegment, merged: Collection[FileEntry], nonce: str, retry_policy: RetryPolicy
) -> bool:
    """Lets the index name a file list with the merged files. It can be repeated with the same ``nonce``.

    ``segment`` is as it was planned. False if the index names another file list by now, or has no such segment.
    Raises CorruptDocument, StoreUnavailable, and DataLost if the file list is gone.
    """
    name = write_next_file_list(store, segment, merged, nonce, retry_policy)
    return sealed_index.name_file_list(
        store, segment.topic, segment.uid, segment.name, segment.file_list, name, retry_policy
    )


def write_next_file_list(
    store: Store, segment: StoredSegment, merged: Collection[FileEntry], nonce: str, retry_policy: RetryPolicy
) -> str:
    """Writes the file list with the merged files, and returns its name, which the index does not have yet.

    Raises as :func:`switch_file_list`.
    """
    file_list = load_file_list(store, segment)
    if file_list is None:
        assert segment.end is not None, "only sealed segments have file lists"
        raise DataLost(
            f"the file list of {segment.name} is gone, because retention removed the segment meanwhile",
            segment=segment.name,
            start=0,
            stop=segment.end,
        )
    following: FileList = with_merged_files(file_list, merged, nonce)
    return write_file_list(store, segment.topic, segment.uid, following, retry_policy)
