"""Reads what the filer has of one segment: by the file list of a sealed one, or by the chunk chain."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from smq.consuming.fetching.fetch_output import FetchOutput
from smq.consuming.fetching.fetch_progress import FetchProgress
from smq.transport.topic_view import TopicView
from smq_core.errors import CorruptDocument, DataLost
from smq_core.file_lists.file_list import FileEntry, FileList
from smq_core.model.entities import SealedSegment
from smq_core.reading.segment_dag import is_removed
from smq_storage.catalog import paths, sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.tables.file_statistics import compacted_file
from smq_storage.tables.range_reader import read_file
from smq_storage.tables.segment_files import StoredSegment, load_file_list
from smq_storage.uploads.uploaded_files import ReferencedRows, read_referenced_rows

log = logging.getLogger(__name__)


class FileFetcher:
    """Used by the reader's thread only. ``sealed`` is the segment's entry in the index, if it has one.

    Reading ends early when ``stop`` is set. ``touch_stream`` is called while a file of many parts is read.
    """

    def __init__(
        self,
        *,
        view: TopicView,
        segment: str,
        sealed: SealedSegment | None,
        output: FetchOutput,
        progress: FetchProgress,
        stop: threading.Event,
        touch_stream: Callable[[], None],
    ) -> None:
        self.sealed = sealed
        self._view = view
        self._segment = segment
        self._output = output
        self._progress = progress
        self._stop = stop
        self._touch_stream = touch_stream
        self._chain: ChunkChain | None = None
        self._file_list: FileList | None = None
        self._unusable_file_list = ""

    def read(self) -> bool:
        """Reads from the position on as far as files exist. True: that was the segment's end."""
        file_list = self._load_file_list()
        return self._read_chunks() if file_list is None else self._read_files(file_list)

    def read_referenced(self, referenced: ReferencedRows) -> bool:
        """Reads rows of an upload from the position on, or reports that it is gone. False: it was stopped."""
        try:
            for first, table in read_referenced_rows(self._view.store.open(), referenced, self._output.position):
                self._output.at_boundary = False
                if not self._output.put(table, first):
                    return False
                self._progress.filer_answered()
                self._touch_stream()
        except DataLost as error:
            if not self._put_loss(error, referenced.end, referenced.path):
                return False
        self._output.at_boundary = True  # an entry with a reference is a separate chunk
        return True

    # ---- by the file list

    def _load_file_list(self) -> FileList | None:
        """The file list of a sealed segment. None if it has none that can be read: then the chunk chain is walked."""
        sealed = self.sealed
        if self._file_list is not None or sealed is None or sealed.file_list == self._unusable_file_list:
            return self._file_list
        topic = self._view.snapshot.topic
        try:
            self._file_list = load_file_list(self._view.store.open(), StoredSegment.of(topic.name, topic.uid, sealed))
        except CorruptDocument as error:
            log.warning("%s is read by its chunk chain, because its file list is damaged: %s", self._segment, error)
        if self._file_list is None:
            self._unusable_file_list = sealed.file_list
            return None
        self._view.store.open().expect(file.path for file in self._file_list.files)
        if self._output.since:
            self._output.position = max(self._output.position, self._file_list.first_since(self._output.since))
        return self._file_list

    def _read_files(self, file_list: FileList) -> bool:
        """Reads a sealed segment's files from the position on. True: that was the segment's end."""
        assert self.sealed is not None
        while (file := file_list.file_at(self._output.position)) is not None and not self._stop.is_set():
            try:
                if not self._read_file(file):
                    return False
            except DataLost as error:
                if not paths.is_upload(file.path):
                    return not self._is_replaced() and self._report_removed(self.sealed.end, error)
                if not self._put_loss(error, file.end, file.path):
                    return False
        if self._stop.is_set():
            return False
        self._output.put_end(self.sealed.end, self.sealed.lost)
        return True

    def _read_file(self, file: FileEntry) -> bool:
        """Reads the rows of a file from the position on. False: it was stopped. Raises DataLost."""
        for first, table in self._parts(file):
            self._progress.filer_answered()
            if not self._output.put(table, first):
                return False
        return True

    def _parts(self, file: FileEntry) -> Iterator[tuple[int, pa.Table]]:
        return read_file(self._view.store.open(), self._segment, file, self._output.position, file.end)

    def _is_replaced(self) -> bool:
        """Whether the index names another file list by now, because of a compaction. Reading goes on with that one."""
        topic, sealed = self._view.snapshot.topic, self.sealed
        entries = sealed_index.read(self._view.store.open(), topic.name, topic.uid)
        entry = next((it for it in entries if it.name == self._segment), None)
        if entry is None or sealed is None or entry.file_list == sealed.file_list:
            return False
        self.sealed, self._file_list, self._unusable_file_list = entry, None, ""
        return True

    # ---- by the chunk chain

    def _read_chunks(self) -> bool:
        """Reads chunks from the position to the end of the chain. True: that was the segment's end."""
        output = self._output
        chain = self._chain
        if chain is None:
            topic = self._view.snapshot.topic
            chain = self._chain = ChunkChain(self._view.store.open(), topic.name, topic.uid, self._segment)
        while not self._stop.is_set():
            if self.sealed is not None and output.position >= self.sealed.end:
                output.put_end(self.sealed.end, self.sealed.lost)
                return True
            first: int | None = output.position if output.at_boundary else chain.find(output.position)
            found = chain.read(first) if first is not None else None
            if found is None and output.at_boundary and (self.sealed is not None or not self._is_in_layout()):
                # If the chunk that began here was merged, an earlier one says where its rows are.
                first = chain.find(output.position)
                found = chain.read(first) if first is not None else None
            self._progress.filer_answered()
            if found is None:
                return self._at_end_of_chain(chain)
            info, table = found
            if info.sealed:
                output.put_end(info.first, info.lost)
                return True
            output.watermark = max(output.watermark, info.end)
            referenced = ReferencedRows.of_chunk(self._view.snapshot.topic.uid, info)
            compacted = compacted_file(chain.path(info.first), info)
            if referenced is not None:
                goes_on = self.read_referenced(referenced)
            elif compacted is not None:
                goes_on = self._read_compacted(chain, compacted)
            else:
                output.at_boundary = False  # an error may leave the position within the chunk
                goes_on = output.at_boundary = output.put(table, info.first)
            if not goes_on:
                return False
        return False

    def _read_compacted(self, chain: ChunkChain, file: FileEntry) -> bool:
        """Reads the merged rows of a compacted chunk from the position on. False: it was stopped, or read again."""
        self._output.at_boundary = False
        try:
            if not self._read_file(file):
                return False
        except DataLost as error:
            info = chain.info(file.first)
            if info is None or compacted_file(chain.path(file.first), info) != file:
                return False  # it was merged again
            if not self._put_loss(error, file.end, file.path):
                return False
        self._output.at_boundary = True
        return True

    def _at_end_of_chain(self, chain: ChunkChain) -> bool:
        """Handles a position that no chunk has, because it is not written yet or was removed. True: all is read."""
        if self.sealed is not None:
            # The index has the segment's end, so the chunk existed, and was merged meanwhile or removed by retention.
            chain.confirm_missing(self._output.position)
            return not self._is_replaced() and self._report_removed(self.sealed.end)
        self._output.watermark_known = True
        if not self._output.at_boundary or not self._is_in_layout():
            seal = chain.read_seal_chunk()
            if seal is not None and seal.first <= self._output.position:
                self._output.put_end(seal.first, seal.lost)
                return True
            if seal is None and not self._is_in_layout():
                return self._check_sealed_history()
        return False

    def _check_sealed_history(self) -> bool:
        """Handles a segment without a layout entry or a seal, which retention may have removed. True: all is read."""
        sealed_history = self._view.sealed_history()
        self.sealed = sealed_history.sealed.get(self._segment)
        if self.sealed is None and is_removed(self._segment, sealed_history.removed):
            return self._report_removed(sealed_history.ends.get(self._segment))
        return False

    def _is_in_layout(self) -> bool:
        return self._segment in self._view.snapshot.layout

    # ---- what is gone

    def _report_removed(self, end: int | None, cause: DataLost | None = None) -> bool:
        """Reports that nothing is left of the segment. Returns True: all is read."""
        if cause is not None:
            log.warning("reading %s: %s", self._segment, cause.message)
        self._output.put_removed(end)
        return True

    def _put_loss(self, cause: DataLost, end: int, path: str) -> bool:
        """Reports that a file is gone or altered, and goes on after it. False: it was stopped."""
        log.warning("reading %s: %s", self._segment, cause.message)
        return self._output.put_loss(end, path)
