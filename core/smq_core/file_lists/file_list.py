"""The list of a sealed segment's files, with what a reader must know to skip a file without opening it.

The file list says what the chunk chain says, in one object. The seal chunk is not listed: its offset is ``end``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from smq_core.model.compacted_rows import StoredRows
from smq_core.model.entities import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry(StoredRows):
    """One Parquet file with rows ``first .. first + rows - 1`` of the segment.

    ``path`` is relative to the store's root.

    The file may be an upload that the log refers to. Then the first message is the row ``first_row`` of the file, and
    ``bytes`` the share of the file that these rows take.

    ``large_values`` names the objects with values of these rows.
    """

    path: str
    first: int
    rows: int
    schema_version: int = 0
    first_row: int = 0
    large_values: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self.first + self.rows


@dataclass(frozen=True, kw_only=True)
class FileList:
    """All files of a sealed segment, in the order of their offsets, from 0 to ``end`` without a gap.

    ``version`` is 0 for the files of the chunk chain; whoever replaces files writes the next one. ``nonce`` makes the
    name of such a later version unique, because two writers may replace files at once. Raises ValueError if the files
    leave a gap, overlap, or do not end at ``end``.
    """

    segment: str
    end: int
    files: tuple[FileEntry, ...] = ()
    version: int = 0
    nonce: str = ""

    def __post_init__(self) -> None:
        at = 0
        for file in self.files:
            if file.first != at or file.rows <= 0:
                raise ValueError(
                    f"{file.path} has {file.rows} rows from {file.first}, but the files before end at {at}"
                )
            at = file.end
        if at != self.end:
            raise ValueError(f"the files end at {at}, but the segment at {self.end}")

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)

    def file_at(self, offset: int) -> FileEntry | None:
        """The file with this offset, or None if the segment ends at or before it."""
        return self.files[bisect_right(self._firsts, offset) - 1] if 0 <= offset < self.end else None

    def files_between(self, start: int, stop: int) -> tuple[FileEntry, ...]:
        """The files with any of the offsets ``start .. stop - 1``."""
        start, stop = max(start, 0), min(stop, self.end)
        if start >= stop:
            return ()
        return self.files[bisect_right(self._firsts, start) - 1 : bisect_right(self._firsts, stop - 1)]

    def first_since(self, since: Micros) -> int:
        """The first offset of the first file that may have a message appended at or after ``since``, or ``end``.

        Append times never decrease within a segment, so no message before that offset qualifies.
        """
        later = (file.first for file in self.files if file.appended_max is None or file.appended_max >= since)
        return next(later, self.end)

    @cached_property
    def _firsts(self) -> list[int]:
        return [file.first for file in self.files]
