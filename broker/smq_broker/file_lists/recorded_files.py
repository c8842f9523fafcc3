"""Records the chunk files of hosted segments, so that their file lists are written without a walk of the chain."""

from __future__ import annotations

import structlog

from smq_broker.runtime.lock_order import BrokerLock
from smq_core.file_lists.file_list import FileList
from smq_core.file_lists.file_list_draft import FileListDraft
from smq_storage.chunks.chain import StoredChunk
from smq_storage.process.locks import make_lock
from smq_storage.tables.file_statistics import file_entry

# How many files are recorded for all segments of a process together, about 600 bytes each.
MAX_FILES = 50_000

log = structlog.get_logger(__name__)


class FileLimit:
    """Counts the recorded files of all segments. Safe from many threads."""

    def __init__(self, limit: int = MAX_FILES) -> None:
        self._limit = limit
        self._lock = make_lock()
        self.used = 0

    def change(self, by: int) -> bool:
        """Counts files that were added or dropped. False if there are too many now."""
        with self._lock:
            self.used += by
            return self.used <= self._limit


class RecordedFiles:
    """The files of one segment that this process wrote, or read while it sealed. Safe from many threads.

    If there are too many, its files are dropped. Then the leader walks the chain instead.
    """

    def __init__(self, segment: str, key: str, limit: FileLimit) -> None:
        self._draft = FileListDraft(segment)
        self._key = key
        self._limit = limit
        self._lock = make_lock(BrokerLock.RECORDED_FILES)

    def add(self, chunk: StoredChunk) -> None:
        """Takes a chunk of the chain; one that is known, or the seal chunk, changes nothing. Never raises."""
        if chunk.info.sealed or chunk.info.first < self._draft.end or self._draft.abandoned:
            return
        try:
            file = file_entry(chunk, self._key)
        except Exception:
            # Nothing may keep a chunk from being counted as written.
            log.exception("file_list.file_not_recorded", path=chunk.path)
            self.abandon()
            return
        with self._lock:
            before = len(self._draft)
            self._draft.add(file)
            if not self._limit.change(len(self._draft) - before):
                self._drop_all()

    def take(self, end: int) -> FileList | None:
        """The file list of the segment, sealed at ``end``, if every file is known. Its files are dropped."""
        with self._lock:
            file_list = self._draft.file_list(end)
            self._drop_all()
            return file_list

    def abandon(self) -> None:
        """Frees the memory, and takes no more files."""
        with self._lock:
            self._drop_all()

    def _drop_all(self) -> None:
        self._limit.change(-len(self._draft))
        self._draft.abandon()
