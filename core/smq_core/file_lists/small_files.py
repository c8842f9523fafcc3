"""Which small files of a sealed segment the leader merges by itself.

A reader pays a request for each file. Therefore many small neighbours cost it time. To merge them costs a request each,
too, and about ten for the next file list. So a run is merged only if the first reader of the merged file saves more
requests than that. What was merged once stays, whatever its size, so no row is written again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smq_core.file_lists.compaction_plan import FileRun, plan_compaction
from smq_core.file_lists.file_list import FileEntry

# A file below this size is small: larger ones are read as fast as the network is.
SMALL_FILE_BYTES = 1024 * 1024

# The fewest files that are merged into one. The fixed requests of a merge are eleven.
MIN_FILES = 16

# The most files that are merged into one, so that one merge takes seconds, however small they are.
MAX_FILES = 1000

# The most bytes of a merged file, because the leader holds all of it.
TARGET_BYTES = 16 * 1024 * 1024

# The largest limit for small files with which a run of ``MIN_FILES`` is never above the target.
MAX_SMALL_FILE_BYTES = TARGET_BYTES // MIN_FILES


@dataclass(frozen=True, slots=True)
class SmallFilePolicy:
    """Files below ``below_bytes`` are small. 0: none is, so nothing is merged."""

    below_bytes: int = SMALL_FILE_BYTES

    def plan(self, files: Sequence[FileEntry], is_mergeable: Callable[[FileEntry], bool]) -> list[FileRun]:
        """The runs that are worth merging, in the order of their offsets.

        ``is_mergeable`` is false for files that stay as they are, such as those that were merged before.
        """

        def is_small(file: FileEntry) -> bool:
            return file.bytes < self.below_bytes and is_mergeable(file)

        runs = plan_compaction(files, TARGET_BYTES, is_small, MAX_FILES)
        return [run for run in runs if len(run.files) >= MIN_FILES]
