"""The files of a topic in which each message is exactly once, by index and file lists, for tools that read Parquet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from smq_core.file_lists.file_list import FileEntry
from smq_core.model.entities import Micros
from smq_storage.catalog import paths
from smq_storage.object_store.store import Store
from smq_storage.tables.pinned_reads import read_topic_files
from smq_storage.tables.segment_files import files_between

CHUNK, COMPACTED, UPLOAD = "chunk", "compacted", "upload"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file of a segment; the rows of an upload may be a part of those in the file."""

    segment: str
    kind: str
    """``chunk``, ``compacted`` or ``upload``"""
    file: FileEntry


def list_files(store: Store, topic: str, uid: str, since: Micros = 0) -> Iterator[ListedFile]:
    """All files, first those of sealed segments in the order of the index; of open segments those that exist.

    Files all of whose messages were appended before ``since`` are left out. Messages that only brokers hold are in no
    file yet. Raises UnknownTopic, DataLost if retention removes a segment meanwhile, CorruptChunk, CorruptDocument,
    StoreUnavailable.
    """
    for segment in read_topic_files(store, topic, uid).segments():
        stop = segment.end if segment.end is not None else sys.maxsize
        for file in files_between(store, segment, 0, stop):
            if file.appended_max is None or file.appended_max >= since:
                yield ListedFile(segment.name, kind_of(file.path), file)


def kind_of(path: str) -> str:
    """What the file at this path is."""
    if paths.is_upload(path):
        return UPLOAD
    return COMPACTED if paths.is_compacted(path) else CHUNK
