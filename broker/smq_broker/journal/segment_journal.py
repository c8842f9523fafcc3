"""Writes one segment's journal: appends records, and deletes files whose messages are in the filer.

Nothing is synced to the disk: the page cache outlives the process, and a machine's failure is what followers are for.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from smq_broker.journal.record_format import Bytes, record_parts
from smq_broker.journal.segment_files import REMOVED, mark_broken, records_file, write_definition
from smq_proto.v1 import data_pb2 as pb

FILE_BYTES = 16 * 1024 * 1024
"""A file that has as many bytes gets no more records."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC


class JournalMeter(Protocol):
    """Counts what journals write. ``seconds`` is the duration of one write."""

    def written(self, nbytes: int, seconds: float) -> None: ...

    def resized(self, nbytes: int) -> None:
        """The files on disk have as many more bytes, or fewer if it is negative."""

    def failed(self) -> None:
        """A segment continues without a journal, because its disk failed."""


@dataclass(slots=True)
class _File:
    """``end`` is the offset after its last message; ``size`` is in bytes."""

    path: Path
    end: int
    size: int = 0


class SegmentJournal:
    """Safe from many threads. ``lock`` is held for each change of files, and orders the writers of one segment.

    All methods raise OSError if the disk fails; then the caller calls ``give_up``.
    """

    def __init__(self, folder: Path, opened: pb.OpenSegment, meter: JournalMeter, file_bytes: int = FILE_BYTES) -> None:
        self.lock = threading.RLock()
        self.folder = folder
        self._opened = opened
        self._meter = meter
        self._file_bytes = file_bytes
        self._created = False
        self.ended = False
        """Nothing is written any more."""
        self.trimmed_to = 0
        self._files: deque[_File] = deque()
        self._fd: int | None = None

    def create(self) -> None:
        """Records that this process hosts the segment. Repeating it is harmless."""
        with self.lock:
            if not self._created and not self.ended:
                # A folder with a definition always has a file of records, so that a missing one is noticed.
                self.folder.mkdir(parents=True, exist_ok=True)
                self._begin_file(0)
                write_definition(self.folder, self._opened)
                self._created = True

    def append(self, first: int, end: int, header: bytes, body: Bytes) -> None:
        """Writes one record with the messages ``first .. end - 1``. After an error part of it may be there."""
        with self.lock:
            if self.ended:
                return
            self.create()
            parts = record_parts(header, body)
            if self._files[-1].size >= self._file_bytes:
                self._begin_file(first)
            current = self._files[-1]
            began = time.perf_counter()
            size = self._write(parts)
            current.size += size
            current.end = end
            self._meter.written(size, time.perf_counter() - began)
            self._meter.resized(size)

    def trim(self, chain_end: int) -> None:
        """Deletes the files whose messages are all below the chain's end. The last file stays, without records."""
        with self.lock:
            self.trimmed_to = max(self.trimmed_to, chain_end)
            while self._files and self._files[0].end <= chain_end and (len(self._files) > 1 or self._fd is None):
                self._meter.resized(-self._files[0].size)
                self._files.popleft().path.unlink(missing_ok=True)
            if self._fd is None or not self._files[-1].size or self._files[-1].end > chain_end:
                return
            current = self._files[-1]
            os.ftruncate(self._fd, 0)
            self._meter.resized(-current.size)
            current.size = 0
            renamed = records_file(self.folder, current.end)
            current.path.rename(renamed)
            current.path = renamed

    def remove(self) -> None:
        """Deletes the journal, because the segment is sealed. Nothing is written any more."""
        with self.lock:
            self.ended = True
            self.close()
            self._meter.resized(-sum(file.size for file in self._files))
            self._files.clear()
            if self._created:
                self._created = False
                remove_folder(self.folder)

    def give_up(self) -> None:
        """Marks the journal as incomplete after an error. Nothing is written any more, but files are still trimmed."""
        with self.lock:
            if self.ended:
                return
            self.ended = True
            self._meter.failed()
            self.close()
            if self._created:
                mark_broken(self.folder)

    def _begin_file(self, first: int) -> None:
        path = records_file(self.folder, first)
        fd = os.open(path, _FLAGS, 0o644)
        if self._fd is not None:
            os.close(self._fd)
        self._fd = fd
        self._files.append(_File(path, first))

    def _write(self, parts: list[Bytes]) -> int:
        """Writes all bytes. A call writes less than that if the disk becomes full, and the next one fails."""
        assert self._fd is not None
        views = [memoryview(part) for part in parts]
        size = left = sum(view.nbytes for view in views)
        while True:
            written = os.writev(self._fd, views)
            left -= written
            if not left:
                return size
            while written >= views[0].nbytes:
                written -= views.pop(0).nbytes
            views[0] = views[0][written:]

    def close(self) -> None:
        """Closes the file. Everything that was written stays."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def remove_folder(folder: Path) -> None:
    """Deletes a segment's folder, and its parent if that is empty. Raises OSError.

    The rename comes first, so that no recovery finds half of the files.
    """
    removed = folder.with_name(folder.name + REMOVED)
    folder.rename(removed)
    shutil.rmtree(removed)
    try:
        folder.parent.rmdir()
    except OSError:
        return  # it has other segments
