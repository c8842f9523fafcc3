"""When the chunks that a compaction has merged are deleted, and which.

A compaction lets the index name a file list with merged files. From then on nobody plans to read the chunks whose rows
these have, but whoever has planned before may do so for a while. When that is over, the first chunk of each merged file
becomes a *compacted chunk*, which says where the rows are, and the others are deleted. So the chunk chain stays whole:
a walk finds one chunk for each file in the file list, and the seal chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from smq_core.file_lists.file_list import FileEntry
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.common_fields import fields_of
from smq_core.model.compacted_rows import CompactedRows, StoredRows
from smq_core.model.entities import Micros, SealedSegment


class CleanupStep(Enum):
    """What is to be done about the superseded chunks of one segment."""

    NOTHING = "it has none, or they stay"
    RECORD = "write down since when they are superseded"
    WAIT = "readers may still need them"
    DELETE = "delete them"


def next_step(entry: SealedSegment, version: int, age: Micros, grace: Micros | None) -> CleanupStep:
    """``version`` is that of the entry's file list, and ``age`` that of its record, as far as there is one.

    ``grace`` is how long superseded chunks stay; None keeps them until retention removes the segment.
    """
    if version == 0 or grace is None:
        return CleanupStep.NOTHING
    record = entry.superseded
    if record is None or record.file_list != entry.file_list:
        return CleanupStep.RECORD
    if record.deleted:
        return CleanupStep.NOTHING
    return CleanupStep.DELETE if age >= grace else CleanupStep.WAIT


def superseded_offsets(file: FileEntry, chunks: Iterable[int]) -> list[int]:
    """Which of the chunks with these first offsets are deleted, because the merged ``file`` has their rows.

    The first one stays: it becomes the compacted chunk.
    """
    return sorted({first for first in chunks if file.first < first < file.end})


def why_kept(file: FileEntry, chunks: Sequence[ChunkInfo]) -> str | None:
    """Why these chunks must stay although the merged ``file`` has their offsets; None if its rows are all they have.

    A chunk may be the only one that names an upload or a large value, which would be collected without it.
    """
    large_values = set(file.large_values)
    for info in chunks:
        if info.sealed:
            return f"the segment is sealed at offset {info.first}"
        if info.first < file.first or info.end > file.end:
            return f"the chunk at offset {info.first} has rows up to {info.end}"
        if info.reference is not None or info.upload is not None:
            return f"the chunk at offset {info.first} refers to an upload"
        if not large_values.issuperset(info.large_values):
            return f"the chunk at offset {info.first} names large values that the merged file does not name"
    return None


def compacted_chunk(first: ChunkInfo, file: FileEntry, name: str) -> ChunkInfo:
    """What replaces the ``first`` chunk of a merged file, whose ``name`` is that below the segment's compacted files.

    It keeps writer and nonce, so that a broker whose PUT had no answer still finds its own. A walk that needs the
    producers' states applies it as a change of none.
    """
    return ChunkInfo(
        segment=first.segment,
        first=first.first,
        rows=file.rows,
        writer=first.writer,
        nonce=first.nonce,
        snapshot_at=0,
        schema_version=file.schema_version,
        large_values=file.large_values,
        compacted=CompactedRows(name=name, **fields_of(StoredRows, file)),
    )
