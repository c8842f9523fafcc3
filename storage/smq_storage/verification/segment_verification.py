"""Checks the files of one segment: chunk chain, seal, file list, footers, and the uploads that chunks refer to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

import pyarrow as pa

from smq_core.errors import CorruptChunk, CorruptDocument, DataLost
from smq_core.file_lists.file_list import FileEntry, FileList
from smq_core.model.entities import SealedSegment, SegmentEntry, Topic
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.chunks.file_errors import name_file_errors
from smq_storage.chunks.parquet_codec import decode_footer
from smq_storage.chunks.parquet_ranges import read_tail
from smq_storage.chunks.schemas import chunk_schema, without_append_time
from smq_storage.object_store.absence import SuspectedAbsences
from smq_storage.object_store.store import ObjectMissing, Store
from smq_storage.tables.file_lists import read_file_list
from smq_storage.tables.file_statistics import file_entry
from smq_storage.tables.range_reader import read_file
from smq_storage.tables.segment_files import lost_file
from smq_storage.verification.columns import TopicColumns
from smq_storage.verification.counted_partitions import CountedPartitions
from smq_storage.verification.findings import FileProblem
from smq_storage.verification.referenced_uploads import ReferencedUploads


@dataclass(kw_only=True)
class SegmentFiles:
    """``segment`` is the entry of the index, or of the layout if it is not sealed. ``rows``: whether all rows are read.
    ``files`` has those that were found, in order.

    A missing file is a problem only after ``absences`` were confirmed.
    """

    store: Store
    topic: Topic
    segment: SegmentEntry
    columns: TopicColumns
    uploads: ReferencedUploads
    absences: SuspectedAbsences
    rows: bool
    files: list[FileEntry] = field(default_factory=list)
    _schema: pa.Schema | None = field(default=None, init=False)
    _checked: set[FileEntry] = field(default_factory=set, init=False)
    """The compacted files that were checked."""
    _counted: CountedPartitions = field(default_factory=CountedPartitions, init=False)

    def problems(self) -> Iterator[FileProblem]:
        """In the order of the offsets. May raise StoreUnavailable."""
        chain = ChunkChain(self.store, self.topic.name, self.topic.uid, self.segment.name)
        chain.expect_all()
        at, sealed = 0, False
        try:
            for chunk in chain.walk_stored():
                yield from self._chunk(chunk, at)
                at, sealed = chunk.info.end, chunk.info.sealed
        except CorruptChunk as error:
            yield FileProblem.of(error, chain.path(at))
            return
        entry = self.segment
        if not isinstance(entry, SealedSegment):
            return
        if not sealed:
            self.absences.add(chain.path(at))
            yield FileProblem(chain.path(at), f"is missing: {entry.name} ends at offset {entry.end}")
        elif entry.end != at:
            yield FileProblem(chain.path(at), f"seals {entry.name} at offset {at}, but the index at {entry.end}")
        elif entry.file_list:
            yield from self._file_list(entry.file_list)

    def _chunk(self, chunk: StoredChunk, at: int) -> Iterator[FileProblem]:
        info = chunk.info
        if (info.segment, info.first) != (self.segment.name, at):
            yield FileProblem(chunk.path, f"is the chunk of {info.segment} at offset {info.first}")
        if info.sealed:
            yield from self._kafka_offsets(chunk, None)
            return
        found = chunk.footer.schema.to_arrow_schema()
        expected = self._expected_schema(found)
        if found.names != expected.names or found.types != expected.types:
            yield FileProblem(chunk.path, f"has the columns {found.names}, expected {expected.names} with their types")
        file = file_entry(chunk, None)
        self.files.append(file)
        counts: Counter[int] | None = None
        if info.reference is not None:
            if chunk.footer.num_rows:
                yield FileProblem(chunk.path, f"has {chunk.footer.num_rows} rows, although it refers to an upload")
            yield from self.uploads.problems(chunk.path, info, info.reference, without_append_time(expected))
        elif info.compacted is not None:
            if chunk.footer.num_rows:
                yield FileProblem(chunk.path, f"has {chunk.footer.num_rows} rows, although it names a compacted file")
            yield from self._compacted(file)
        elif self.rows:
            counts = Counter()
            yield from self._rows(file, counts)
        yield from self._kafka_offsets(chunk, counts)

    def _kafka_offsets(self, chunk: StoredChunk, counts: Counter[int] | None) -> Iterator[FileProblem]:
        if self.topic.spec.has_kafka_offsets:
            yield from (FileProblem(chunk.path, what) for what in self._counted.problems(chunk.info, counts))

    def _expected_schema(self, found: pa.Schema) -> pa.Schema:
        """That of the segment's version; if nothing has it any more, that of the segment's first chunk."""
        if self._schema is None:
            columns = self.columns.of(self.segment.schema_version)
            self._schema = found if columns is None else chunk_schema(columns)
        return self._schema

    def _rows(self, file: FileEntry, counts: Counter[int]) -> Iterator[FileProblem]:
        """Reads all rows, and counts those of each partition."""
        low, high = self.segment.range.start, self.segment.range.stop - 1
        try:
            for first, table in read_file(self.store, self.segment.name, file, file.first, file.end):
                partitions = table.column("partition").to_numpy()
                counts.update(partitions.tolist())
                if partitions.min() < low or partitions.max() > high:
                    yield FileProblem(
                        file.path,
                        f"has partitions {partitions.min()} to {partitions.max()} from offset {first} on, "
                        f"{self.segment.name} has {low} to {high}",
                    )
        except (CorruptChunk, DataLost) as error:
            yield FileProblem.of(error, file.path)

    def _file_list(self, name: str) -> Iterator[FileProblem]:
        path = paths.file_list(self.topic.name, self.topic.uid, name)
        try:
            found = read_file_list(self.store, self.topic.name, self.topic.uid, name)
        except CorruptDocument as error:
            yield FileProblem.of(error, path)
            return
        if found is None:
            self.absences.add(path)
            yield FileProblem(path, "is missing, although the index names it")
            return
        if found.version:
            yield from self._merged(found)
            return
        for listed, there in zip_longest(found.files, self.files):
            if listed is None or there is None or _identity(listed) != _identity(there):
                one = listed or there
                yield FileProblem(path, f"lists another file than the chunk chain has at offset {one.first}")
                return

    def _merged(self, file_list: FileList) -> Iterator[FileProblem]:
        """A later file list's files with merged rows. The others are those of the chain."""
        for file in file_list.files:
            if paths.is_compacted(file.path) and file not in self._checked:
                yield from self._compacted(file)

    def _compacted(self, file: FileEntry) -> Iterator[FileProblem]:
        """A file with merged rows, which the file list has and a compacted chunk may name, too."""
        self._checked.add(file)
        problems = list(self._footer(file))
        yield from self._rows(file, Counter()) if self.rows and not problems else problems

    def _footer(self, file: FileEntry) -> Iterator[FileProblem]:
        lost = lost_file(file.path, self.segment.name, file.first, file.end)
        try:
            with name_file_errors(self.store, file.path, file.etag, lambda: lost):
                try:
                    tail = read_tail(self.store, file.path, file.etag)
                except ObjectMissing:
                    self.absences.add(file.path)
                    raise lost from None
                rows = decode_footer(tail.data).num_rows
        except (CorruptChunk, DataLost) as error:
            yield FileProblem.of(error, file.path)
        else:
            if rows != file.rows:
                yield FileProblem(file.path, f"has {rows} rows, the file list says {file.rows}")


def _identity(file: FileEntry) -> tuple[object, ...]:
    return file.path, file.first, file.rows, file.bytes, file.etag, file.first_row
