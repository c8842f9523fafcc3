"""Divides ranges at the bounds of files, with their sizes: from its file list, or from a listing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from pyspark_smq.planning.partition_sizes import SizedRange
from pyspark_smq.planning.wanted import Wanted
from smq_core.errors import CorruptDocument
from smq_core.file_lists.file_list import FileEntry, FileList
from smq_core.reading.segment_ranges import SegmentRange
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from smq_storage.tables.segment_files import StoredSegment, load_file_list

log = logging.getLogger(__name__)

# How many segments are looked at at once.
REQUESTS = 16

# A guess for messages that are referred to: their chunk is small, and the upload that has them may be large.
MIN_ROW_BYTES = 32

# A guess for messages that are in no file yet.
MEMORY_ROW_BYTES = 256


def sized_ranges(
    store: Store, segments: Mapping[str, StoredSegment], ranges: Iterable[SegmentRange], wanted: Wanted
) -> list[SizedRange]:
    """All ranges, divided by file, in their order, without files that certainly have nothing that is wanted.

    One request for a segment with a file list, and a listing for others. Raises StoreUnavailable.
    """
    with ThreadPoolExecutor(REQUESTS, "smq-range-sizes") as executor:
        found = executor.map(lambda it: _sized_ranges(store, segments[it.segment], it, wanted), ranges)
        return [one for some in found for one in some]


def _sized_ranges(store: Store, segment: StoredSegment, wanted_range: SegmentRange, wanted: Wanted) -> list[SizedRange]:
    file_list = _file_list(store, segment)
    if file_list is None:
        return _listed(store, segment, wanted_range)
    files = file_list.files_between(wanted_range.start, wanted_range.stop)
    return [_sized_range(file, wanted_range) for file in files if wanted.may_be_in(file)]


def _file_list(store: Store, segment: StoredSegment) -> FileList | None:
    try:
        return load_file_list(store, segment)
    except CorruptDocument as error:
        log.warning("%s is read by its chunk chain: %s", segment.name, error.message)
        return None


def _sized_range(file: FileEntry, wanted: SegmentRange) -> SizedRange:
    start, stop = max(file.first, wanted.start), min(file.end, wanted.stop)
    return SizedRange(SegmentRange(wanted.segment, start, stop), file.bytes * (stop - start) // file.rows)


def _listed(store: Store, segment: StoredSegment, wanted: SegmentRange) -> list[SizedRange]:
    """A listing may lack files, and says nothing of memory: so the sizes are estimates, and the range is all there."""
    files = ChunkChain(store, segment.topic, segment.uid, segment.name).files()
    sizes = {first: it.size for it in files if (first := paths.first_offset(it.path)) is not None}
    begin = max((first for first in sizes if first <= wanted.start), default=0)
    bounds = [*(first for first in sorted(sizes) if begin <= first < wanted.stop), wanted.stop]
    if bounds[0] > wanted.start:
        bounds.insert(0, wanted.start)
    sized = []
    for first, end in pairwise(bounds):
        start, stop = max(first, wanted.start), min(end, wanted.stop)
        rows, size = end - first, sizes.get(first, (end - first) * MEMORY_ROW_BYTES)
        if start < stop:
            estimate = max(size * (stop - start) // rows, (stop - start) * MIN_ROW_BYTES)
            sized.append(SizedRange(SegmentRange(segment.name, start, stop), estimate))
    return sized
