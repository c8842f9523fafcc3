"""The Kafka offsets at which partitions end after a file of a segment.

A chunk has them in its info, also one that refers to an upload. A compacted file has those of the last chunk whose rows
it has, because that chunk is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from smq_core.errors import CorruptChunk
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.partition_offsets import PartitionOffsets
from smq_storage.catalog import paths
from smq_storage.chunks.file_errors import name_file_errors
from smq_storage.chunks.info_codec import decode_info_json
from smq_storage.chunks.parquet_codec import KEY, decode_footer, info_of
from smq_storage.chunks.parquet_ranges import read_tail
from smq_storage.object_store.json_codec import from_json
from smq_storage.object_store.store import Store
from smq_storage.tables.compacted_files import PARTITIONS
from smq_storage.tables.segment_files import StoredSegment, lost_file


def read_partition_ends(store: Store, segment: StoredSegment, file: FileEntry) -> PartitionOffsets | None:
    """Where the partitions end after this file; None if the topic does not count their messages.

    Reads the end of one file. Raises DataLost if it is gone, CorruptChunk, StoreUnavailable.
    """
    is_upload, is_compacted = paths.is_upload(file.path), paths.is_compacted(file.path)
    path = paths.chunk(segment.topic, segment.uid, segment.name, file.first) if is_upload else file.path
    lost = lost_file(path, segment.name, file.first, file.end)
    with name_file_errors(store, path, file.etag, lambda: lost):
        footer = decode_footer(read_tail(store, path, file.etag if is_compacted else None).data)
        if is_compacted:
            return partition_ends_of(footer.metadata or {})
        info = info_of(footer)
    if info.compacted is not None:  # the chunk was replaced meanwhile, and its rows are in another file
        raise lost
    if (info.first, info.end) != (file.first, file.end):
        raise CorruptChunk(
            f"{path} has the messages {info.first} to {info.end - 1}, not {file.first} to {file.end - 1}", path=path
        )
    return info.partitions


def partition_ends_of(metadata: Mapping[bytes, bytes]) -> PartitionOffsets | None:
    """As the metadata of a chunk or a compacted file say it. Raises CorruptChunk."""
    try:
        if (stored := metadata.get(PARTITIONS.encode())) is not None:
            return from_json(PartitionOffsets, stored)
        info = metadata.get(KEY.encode())
        return decode_info_json(info).partitions if info is not None else None
    except ValueError as error:
        raise CorruptChunk(f"the metadata that say where partitions end are damaged: {error}") from None
