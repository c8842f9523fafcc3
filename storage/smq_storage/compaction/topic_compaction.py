"""The compaction of a topic: what to merge, by whomever, and the switch of each segment to its merged files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from smq_core.errors import DataLost, StoreDenied
from smq_core.file_lists.compaction_plan import FileRun
from smq_core.file_lists.file_list import FileEntry
from smq_storage.catalog import sealed_index
from smq_storage.compaction.file_list_switch import TARGET_BYTES, plan_segment, switch_file_list
from smq_storage.compaction.merging import merge_run
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, StoreSettings
from smq_storage.tables.segment_files import StoredSegment


@dataclass(frozen=True, slots=True)
class MergeTask:
    """One run of files of a segment. It can be sent to another process. ``key`` names the topic's key column."""

    segment: StoredSegment
    run: FileRun
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedSegment:
    """What became of a segment. ``switched`` is false if somebody else changed it, or retention removed it, meanwhile.

    ``bytes`` is the size of the files that were merged.
    """

    segment: str
    merged_files: int
    new_files: int
    bytes: int
    switched: bool


# Runs merges, anywhere, and returns their new files in the order of the tasks.
MergeAll = Callable[[Sequence[MergeTask]], Iterable[list[FileEntry]]]


def compact_topic(
    store: Store,
    topic: str,
    uid: str,
    key: str | None,
    merge_all: MergeAll,
    target_bytes: int = TARGET_BYTES,
    retry_policy: RetryPolicy | None = None,
) -> Iterator[CompactedSegment]:
    """Compacts the sealed segments, oldest first, and yields those in which there was something to merge.

    ``key`` names the topic's key column; None if it has none. It can be interrupted and repeated at any time. Raises
    CorruptDocument, CorruptChunk, StoreUnavailable; segments that were yielded are done.
    """
    for entry in sealed_index.read(store, topic, uid):
        segment = StoredSegment.of(topic, uid, entry)
        tasks = [MergeTask(segment, run, key) for run in plan_segment(store, segment, target_bytes)]
        if not tasks:
            continue
        merged_files = sum(len(task.run.files) for task in tasks)
        size = sum(task.run.bytes for task in tasks)
        try:
            new = [file for files in merge_all(tasks) for file in files]
            switched = switch_file_list(store, segment, new, uuid.uuid4().hex, retry_policy or RetryPolicy())
        except DataLost:
            new, switched = [], False  # retention removed the segment
        yield CompactedSegment(
            segment=segment.name, merged_files=merged_files, new_files=len(new), bytes=size, switched=switched
        )


def check_key(settings: StoreSettings, topic: str) -> None:
    """Raises StoreDenied if this process has no key for the store: nobody signs what a compaction writes."""
    if settings.lacks_credentials:
        raise StoreDenied(
            f"a compaction of {topic} replaces documents of the topic, for which the leader signs no URL. Let the Job "
            "of the chart do it (compaction.enabled, compaction.topics), which has the filer's key and enters as a "
            "ServiceAccount of the release; or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key of the filer "
            "that may read, write and list there"
        )


def merge_here(store: Store) -> MergeAll:
    """Merges in this process, one run after the other."""

    def merge_all(tasks: Sequence[MergeTask]) -> Iterator[list[FileEntry]]:
        return (run_task(store, task) for task in tasks)

    return merge_all


def run_task(store: Store, task: MergeTask) -> list[FileEntry]:
    """Writes the new files of one task. Raises as :func:`merge_run`."""
    return merge_run(store, task.segment, task.run, task.key, lambda: uuid.uuid4().hex)
