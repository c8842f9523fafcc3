"""Which file of a segment has a Kafka offset of a partition.

The files are searched by where the partitions end after each of them. Sealed segments never change, so what is read of
them stays true. A living segment gets chunks at its end.
"""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from smq_core.errors import CorruptChunk, DataLost, SmqError
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import SealedSegment, SegmentEntry
from smq_core.model.partition_offsets import PartitionOffsets
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.absence import confirm_missing, hidden
from smq_storage.object_store.store import Store
from smq_storage.partitions.byte_cache import ByteCache
from smq_storage.tables.file_statistics import file_entry
from smq_storage.tables.partition_ends import read_partition_ends
from smq_storage.tables.segment_files import StoredSegment, files_between, lost_file

# About what an entry takes in memory.
_FILE_BYTES = 700
_END_BYTES = 40


@dataclass(frozen=True, slots=True)
class CountedFile:
    """A file, and where the partitions of its segment end after it."""

    file: FileEntry
    ends: PartitionOffsets


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file with messages of a partition, which end at the Kafka offset ``end``.

    They begin at ``start``, if that is known: mostly it is where those of the file before end. If that one cannot be
    read, ``unreadable`` says why, and it may have messages before those of this file.
    """

    file: FileEntry
    end: int
    start: int | None
    unreadable: SmqError | None = None


class KnownFiles:
    """What is known of files of segments, in about ``max_bytes``. Safe from many threads."""

    def __init__(self, max_bytes: int) -> None:
        self.files: ByteCache[CountedFile] = ByteCache(
            max_bytes, lambda it: _FILE_BYTES + _END_BYTES * len(it.ends.ends)
        )
        self.lists: ByteCache[Sequence[FileEntry]] = ByteCache(max_bytes, lambda it: _FILE_BYTES * (len(it) + 1))
        self.seals: ByteCache[ChunkInfo] = ByteCache(
            max_bytes,
            lambda it: _FILE_BYTES * (1 + len(it.producers) + len(it.kafka_producers)),
        )


class SegmentLog(ABC):
    """A segment of a topic whose segments count the messages of each partition. Safe from many threads.

    Each call raises DataLost if a file is gone, CorruptChunk, CorruptDocument and StoreUnavailable.
    """

    entry: SegmentEntry

    def __init__(self) -> None:
        self._unreadable: dict[int, SmqError] = {}

    @abstractmethod
    def seal(self) -> ChunkInfo | None:
        """The seal chunk; None if the segment is not sealed, as far as is known."""

    @abstractmethod
    def files(self) -> Sequence[int]:
        """The first offsets of files, in order."""

    @abstractmethod
    def file(self, first: int) -> CountedFile | None:
        """The file that begins at this offset of the segment, or None if the segment ends there."""

    def entries(self) -> Iterator[FileEntry]:
        """All files, in order."""
        return (counted.file for counted in self.walk())

    def end(self, partition: int) -> int | None:
        """Where the partition ended when the segment was sealed; None if it is not, or ended without knowing it."""
        seal = self.seal()
        return seal.partitions.end(partition) if seal is not None and seal.partitions is not None else None

    def find(self, partition: int, offset: int) -> FoundFile | None:
        """The first file with messages of the partition at this Kafka offset or after it."""
        firsts = self.files()

        def is_after(number: int) -> bool:
            # No offset goes back, so a file that cannot be read ends where the one before ends, or after it.
            for first in reversed(firsts[: number + 1]):
                found = self._try_file(first)
                if not isinstance(found, SmqError):
                    return found is None or found.ends.end(partition) > offset
            return False

        number = bisect.bisect_left(range(len(firsts)), True, key=is_after)
        before = self._try_file(firsts[number - 1]) if number else None
        if isinstance(before, SmqError):
            following = self.file(firsts[number]) if number < len(firsts) else None
            if following is None:
                raise before
            return FoundFile(following.file, following.ends.end(partition), None, before)
        for found in self.walk(before):
            if found.ends.end(partition) > offset:
                return FoundFile(found.file, found.ends.end(partition), _end_unless_it_jumps(before, partition))
            before = found
        return None

    def _try_file(self, first: int) -> CountedFile | SmqError | None:
        """The file, or why it cannot be read, which is found out once."""
        if first not in self._unreadable:
            try:
                return self.file(first)
            except (DataLost, CorruptChunk) as error:
                self._unreadable[first] = error
        return self._unreadable[first]

    def walk(self, after: CountedFile | None = None) -> Iterator[CountedFile]:
        """The files after this one, or all of them."""
        at = after.file.end if after is not None else 0
        while (found := self.file(at)) is not None:
            yield found
            at = found.file.end


class SealedLog(SegmentLog):
    """A segment that the index has."""

    def __init__(self, *, store: Store, topic: str, uid: str, entry: SealedSegment, known: KnownFiles) -> None:
        super().__init__()
        self.entry = self._entry = entry
        self._store = store
        self._stored = StoredSegment.of(topic, uid, entry)
        self._known = known

    def seal(self) -> ChunkInfo:
        return self._known.seals.get_or_load(self._entry.name, self._read_seal)

    def files(self) -> Sequence[int]:
        return [file.first for file in self._files()]

    def file(self, first: int) -> CountedFile | None:
        if first >= self._entry.end:
            return None
        files = self._files()
        file = files[bisect.bisect_right(files, first, key=lambda it: it.first) - 1]
        return self._known.files.get_or_load((self._entry.name, file.path, file.first), lambda: self._read_ends(file))

    def entries(self) -> Iterator[FileEntry]:
        return iter(self._files())

    def _files(self) -> Sequence[FileEntry]:
        end = self._entry.end
        return self._known.lists.get_or_load(
            (self._entry.name, self._entry.file_list),
            lambda: tuple(files_between(self._store, self._stored, 0, end)),
        )

    def _read_ends(self, file: FileEntry) -> CountedFile:
        return CountedFile(file, _counted(read_partition_ends(self._store, self._stored, file), file.path))

    def _read_seal(self) -> ChunkInfo:
        chain = ChunkChain(self._store, self._stored.topic, self._stored.uid, self._entry.name)
        end = self._entry.end
        info = chain.info(end)
        if info is None:
            confirm_missing(self._store, chain.path(end))
            raise lost_file(chain.path(end), self._entry.name, 0, end)
        if not info.sealed:
            raise CorruptChunk(f"{chain.path(end)} does not seal the segment, although the index says so")
        return info


class LivingLog(SegmentLog):
    """A segment that only the layout has. Its chunks are found by a listing, and those after it by their names."""

    def __init__(self, *, store: Store, topic: str, uid: str, entry: SegmentEntry, known: KnownFiles) -> None:
        super().__init__()
        self.entry = entry
        self._store = store
        self._stored = StoredSegment(topic=topic, uid=uid, name=entry.name)
        self._chain = ChunkChain(store, topic, uid, entry.name)
        self._known = known
        self._seal: ChunkInfo | None = None
        self._firsts = sorted(first for it in self._chain.files() if (first := paths.first_offset(it.path)) is not None)

    def seal(self) -> ChunkInfo | None:
        return self._seal

    def files(self) -> Sequence[int]:
        return self._firsts

    def file(self, first: int) -> CountedFile | None:
        known = self._known.files.get((self.entry.name, first))
        if known is not None or (self._seal is not None and self._seal.first == first):
            return known
        chunk = self._chain.stored(first)
        if chunk is None:
            if self._seal is not None:  # known from a listing, and after this chunk
                raise hidden(self._chain.path(first))
            return None
        if chunk.info.sealed:
            self._seal = chunk.info
            return None
        file, ends = file_entry(chunk, None), chunk.info.partitions
        if chunk.info.compacted is not None:  # the segment was sealed a while ago
            ends = read_partition_ends(self._store, self._stored, file)
        counted = CountedFile(file, _counted(ends, chunk.path))
        found = self._known.files.get_or_load((self.entry.name, first), lambda: counted)
        if first not in self._firsts:
            self._firsts = sorted({*self._firsts, first})
        return found

    def last(self) -> CountedFile | None:
        """The last file now. It also finds out whether the segment is sealed."""
        found = None
        for first in reversed(self._firsts):
            if (found := self.file(first)) is not None:
                break
        for following in self.walk(found):
            found = following
        return found


def _end_unless_it_jumps(before: CountedFile | None, partition: int) -> int | None:
    if before is None or any(partition == jumping for jumping, _ in before.ends.jumps):
        return None
    return before.ends.end(partition)


def _counted(ends: PartitionOffsets | None, path: str) -> PartitionOffsets:
    if ends is None:
        raise CorruptChunk(f"{path} does not say at which Kafka offsets its partitions end", path=path)
    return ends
