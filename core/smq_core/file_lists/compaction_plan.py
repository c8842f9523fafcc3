"""Which files of a sealed segment are worth merging, and the file list after they were merged.

Many small files cost a reader a request each. A merged file holds the rows of neighbouring files, so the files of the
next file list have no gap again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from smq_core.file_lists.file_list import FileEntry, FileList


@dataclass(frozen=True, slots=True)
class FileRun:
    """Neighbouring files that become one. At least two."""

    files: tuple[FileEntry, ...]

    @property
    def first(self) -> int:
        return self.files[0].first

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self.files[-1].end

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def plan_compaction(
    files: Sequence[FileEntry],
    target_bytes: int,
    is_mergeable: Callable[[FileEntry], bool],
    max_files: int | None = None,
) -> list[FileRun]:
    """The runs of mergeable neighbours, each of about ``target_bytes`` or less, in the order of their offsets.

    A file of half the target or more stays as it is, and so does one without a small neighbour. All files of a run have
    the same schema version, and they are at most ``max_files``. So what a compaction leaves is left alone by the next
    one.
    """
    runs: list[FileRun] = []
    run: list[FileEntry] = []

    def end_run() -> None:
        if len(run) > 1:
            runs.append(FileRun(tuple(run)))
        run.clear()

    size = 0
    for file in files:
        if file.bytes * 2 >= target_bytes or not is_mergeable(file):
            end_run()
            continue
        is_full = size + file.bytes > target_bytes or len(run) == max_files
        if run and (is_full or file.schema_version != run[0].schema_version):
            end_run()
        size = file.bytes + (size if run else 0)
        run.append(file)
    end_run()
    return runs


def with_merged_files(file_list: FileList, merged: Collection[FileEntry], nonce: str) -> FileList:
    """The next version of the file list, in which each merged file replaces those with its offsets.

    Raises ValueError if a merged file has some but not all offsets of a file that it replaces.
    """
    by_first = sorted(merged, key=lambda file: file.first)
    kept = [
        file for file in file_list.files if not any(new.first <= file.first and file.end <= new.end for new in by_first)
    ]
    files = sorted([*kept, *by_first], key=lambda file: file.first)
    return FileList(
        segment=file_list.segment, end=file_list.end, files=tuple(files), version=file_list.version + 1, nonce=nonce
    )
