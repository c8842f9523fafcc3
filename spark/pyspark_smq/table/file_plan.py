"""Divides what is to be read between Spark's own Parquet scan and the data source ``smq``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_smq.planning.wanted import Wanted
from smq_core.file_lists.file_list import FileEntry
from smq_storage.catalog import paths


@dataclass(frozen=True, slots=True)
class UploadRows:
    """Rows ``first_row .. first_row + rows - 1`` of an upload: messages of a segment from the offset ``first`` on."""

    path: str
    first_row: int
    rows: int
    segment: str
    first: int
    appended: int


@dataclass(slots=True)
class FilePlan:
    """``chunks`` and ``compacted`` are files that are read whole; ``rest`` is what Spark cannot read natively.

    Files are by the version of the topic's schema that they have. Paths are relative to the store's root. ``rest`` has
    ranges of offsets in order, for each segment.
    """

    chunks: dict[int, list[str]] = field(default_factory=dict)
    compacted: dict[int, list[str]] = field(default_factory=dict)
    uploads: dict[int, list[UploadRows]] = field(default_factory=dict)
    rest: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    skipped: int = 0
    """How many files are left out, because they have no message that is wanted."""

    def leave(self, segment: str, start: int, stop: int) -> None:
        """These offsets are read by the data source. Call it in the order of the offsets."""
        if start >= stop:
            return
        ranges = self.rest.setdefault(segment, [])
        if ranges and ranges[-1][1] == start:
            ranges[-1] = ranges[-1][0], stop
        else:
            ranges.append((start, stop))


def plan_files(
    ranges: Mapping[str, tuple[int, int]],
    files: Mapping[str, Sequence[FileEntry]],
    wanted: Wanted,
    *,
    natively: bool = True,
) -> FilePlan:
    """``ranges`` has the offsets ``(start, stop)`` that are read of each segment.

    ``files`` has the segments' files in the order of their offsets, without a gap, as far as there are any. Without
    ``natively`` all that is wanted is the rest.
    """
    plan = FilePlan()
    for segment, (at, end) in ranges.items():
        for file in files.get(segment, ()):
            start, stop = max(file.first, at), min(file.end, end)
            if start >= stop:
                continue
            plan.leave(segment, at, start)
            at = stop
            if not wanted.may_be_in(file):
                plan.skipped += 1
            elif natively:
                _add(plan, segment, file, start, stop)
            else:
                plan.leave(segment, start, stop)
        plan.leave(segment, at, end)
    return plan


def _add(plan: FilePlan, segment: str, file: FileEntry, start: int, stop: int) -> None:
    if file.large_values or is_hidden(file.path):
        plan.leave(segment, start, stop)
    elif paths.is_upload(file.path):
        row = file.first_row + start - file.first
        rows = UploadRows(file.path, row, stop - start, segment, start, file.appended_min or 0)
        plan.uploads.setdefault(file.schema_version, []).append(rows)
    elif (start, stop) != (file.first, file.end):
        plan.leave(segment, start, stop)
    elif paths.first_offset(file.path) is None:
        plan.compacted.setdefault(file.schema_version, []).append(file.path)
    else:
        plan.chunks.setdefault(file.schema_version, []).append(file.path)


def is_hidden(path: str) -> bool:
    """Whether Spark silently leaves out a file of this name."""
    name = path.rpartition("/")[2]
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
