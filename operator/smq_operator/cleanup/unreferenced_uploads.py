"""Deletes old files below ``_uploads/`` and ``_large_values/`` that no chunk refers to.

They were never published, or retention removed their chunk.

A producer uploads a file first and publishes a reference to it later, so a young file may be about to be published. A
file older than ``--unreferenced-uploads-grace`` is deleted if no chunk of the topic names it. ``referenced`` alone
defines what a reference is: ``ChunkInfo.reference`` or ``ChunkInfo.upload``, a file below ``_uploads/`` in a file
list, or the name of a large value in either. What must stay although no chunk names it yet is named by a
``KeptUploads``. Brokers publish no upload that is older than half of the grace. So every upload that is published while
chunks are read here is too young to be deleted.

A reference that was acked is in a chunk only after the next flush, and only a replica or a journal has it until then.
So an upload is deleted only if the primary of every segment in the layout has reported that no unwritten message names
one of that age (``WrittenUploads``). Nothing is deleted while a segment is being sealed, or while a primary does
not report.

Chunks are found by a segment's file list, or by walking its chain from offset 0, never by a listing. A walk takes a GET
for each chunk, so all this is done only if there is an old upload. A chunk that cannot be read or that a sealed segment
lacks stops it, and nothing is deleted.

The uploads of a deleted topic are deleted with its data (``deleted_topics.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TypeAlias

from smq_core.errors import CorruptChunk
from smq_core.model.entities import Phase, Topic
from smq_operator.cleanup.orphaned_files import delete_if_older
from smq_operator.cleanup.retention import read_consistent
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import find_file_list

# Returns the file names below ``_uploads/<topic uid>/`` that must stay although no chunk names them.
#
# It is called after the uploads are listed, and before index, layout and chunks are read. So a name may be dropped
# from what it returns as soon as a chunk has the reference. A name that it returns for the first time must be that of
# an upload younger than half of the grace. If it raises an error, no upload is deleted.
KeptUploads: TypeAlias = Callable[[Store, Topic], Collection[str]]


# An incarnation and a segment that it hosts.
HostedSegment = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WrittenUploads:
    """What a primary has reported of its segment.

    Take any upload that is older than ``before`` in the filer's time. If any message of the segment names it, or will
    name it, then the chunks up to ``chain_end`` name it.
    """

    chain_end: int
    before: datetime


def collect_unreferenced_uploads(
    store: Store,
    topic: Topic,
    before: datetime,
    written: Mapping[HostedSegment, WrittenUploads],
    kept_uploads: Sequence[KeptUploads] = (),
) -> int:
    """Deletes uploads older than ``before``, in the filer's time, that neither a chunk nor ``kept_uploads`` names.

    ``written`` is what primaries have reported before this is called.
    Returns how many it deleted. Raises StoreUnavailable, CorruptChunk, and what ``kept_uploads`` raise.
    """
    folders = paths.uploads_folder(topic.uid), paths.large_values_folder(topic.uid)
    old = [o.path for folder in folders for o in store.list(folder) if o.modified <= before]
    if not old:
        return 0
    kept = {name for find in kept_uploads for name in find(store, topic)}
    known = read_consistent(store, topic)  # after the listing, and after ``kept_uploads``
    if known is None or any(segment.phase is Phase.SEALING for segment in known.layout.segments):
        return 0
    reports = {it.name: written.get((it.primary.incarnation, it.name)) for it in known.layout.segments}
    reported = [report for report in reports.values() if report is not None]
    if len(reported) < len(reports):
        return 0  # a replica or a journal may have messages that name any upload
    before = min((before, *(report.before for report in reported)))
    segments = {segment.name: "" for segment in known.layout.segments}
    # A reader may still be reading removed segments.
    segments |= {segment.name: segment.file_list for segment in known.index.pending_deletion}
    segments |= {entry.name: entry.file_list for entry in known.index.entries}
    ends = {name: report.chain_end for name, report in reports.items() if report is not None}
    kept |= referenced(store, topic, segments, sealed={entry.name for entry in known.index.entries}, ends=ends)
    return sum(delete_if_older(store, path, before) for path in old if paths.upload_name(path) not in kept)


def referenced(
    store: Store,
    topic: Topic,
    segments: Mapping[str, str],
    sealed: Collection[str] = (),
    ends: Mapping[str, int] = MappingProxyType({}),
) -> set[str]:
    """The names of the uploads that these segments refer to. ``segments``: the name of each one's file list, or "".

    Raises CorruptChunk if the chain of a ``sealed`` segment ends before its seal chunk, or another one before its end
    in ``ends``: the chunks behind the gap may name others.
    """
    found: set[str] = set()
    uploads = paths.uploads_folder(topic.uid)
    for segment, name in sorted(segments.items()):
        file_list = find_file_list(store, topic.name, topic.uid, name)
        if file_list is None:
            chain = ChunkChain(store, topic.name, topic.uid, segment)
            end, is_sealed = 0, False
            for info in chain.walk():
                end, is_sealed = info.end, info.sealed
                if info.upload is not None:
                    found.add(info.upload)
                if info.reference is not None:
                    found.add(info.reference.upload)
                found.update(info.large_values)
            if not is_sealed and (segment in sealed or end < ends.get(segment, 0)):
                path = chain.path(end)
                raise CorruptChunk(f"{path} is missing, although {segment} goes on: no upload is deleted", path=path)
        else:
            found |= {paths.upload_name(it.path) for it in file_list.files if it.path.startswith(f"{uploads}/")}
            found.update(name for it in file_list.files for name in it.large_values)
    return found
