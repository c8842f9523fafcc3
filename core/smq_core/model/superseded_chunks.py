"""Since when the chunks that a compaction has merged are superseded, as the index says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SupersededChunks:
    """The chunks of a segment that the file list ``file_list`` does not use.

    ``since`` is when a leader found that file list in the index, by its clock, ``filer_since`` the same moment by the
    filer's, in microseconds. So whoever reads the index after that plans from this file list or a later one.
    ``deleted``: no such chunk is left.
    """

    file_list: str
    since: int
    filer_since: int
    deleted: bool = False
