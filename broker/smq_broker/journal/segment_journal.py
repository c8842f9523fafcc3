"""Writes one segment's journal: appends records, and gives up files whose messages are in the filer.

Nothing is synced to the disk: the page cache outlives the process, and a machine's failure is what followers are for.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import pyarrow as pa

from smq_broker.journal.disk_activity import DiskActivity
from smq_broker.journal.file_writer import FileWriter
from smq_broker.journal.journal_files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    REMOVED,
    first_offset,
    mark_broken,
    records_file,
    write_definition,
)
from smq_broker.journal.mapped_file import MappedFile
from smq_broker.journal.record_format import (
    EMPTY_BYTES,
    END_BYTES,
    RECORDS_AT,
    Bytes,
    empty_file,
    record_parts,
)
from smq_broker.journal.recycled_files import RecycledFiles
from smq_broker.journal.row_encoder import RowEncoder
from smq_broker.runtime.lock_order import BrokerLock
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import make_rlock

# A file that has as many bytes of records gets no more.
FILE_BYTES = 16 * 1024 * 1024
# The rows of smaller records stay in the memory that they came in: a mapped page would have little of them.
MAP_FROM_BYTES = 64 * 1024

P = ParamSpec("P")
R = TypeVar("R")

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class JournalMeter(Protocol):
    """Counts what journals write. ``seconds`` is the duration of one write."""

    def written(self, nbytes: int, seconds: float) -> None: ...

    def resized(self, nbytes: int) -> None:
        """The files on disk have as many more bytes, or fewer if it is negative."""

    def failed(self) -> None:
        """A segment continues without a journal, because its disk failed."""


class ProcessJournal(Protocol):
    """The journal of all segments that this process hosts. Both may raise OSError."""

    def begin(self) -> None:
        """Creates the folder that has the segments' folders, unless it is there."""

    def mark_not_whole(self) -> None:
        """Records that this process hosts a segment that its journal does not name."""


@dataclass(slots=True)
class _File:
    """``end`` is the offset after its last message. ``size`` is in bytes, and so is ``at``, where its records end."""

    path: Path
    end: int
    nonce: int
    size: int
    at: int = RECORDS_AT
    mapped: MappedFile = field(default_factory=MappedFile)


def _on_disk(
    operation: Callable[Concatenate[SegmentJournal, P], R],
) -> Callable[Concatenate[SegmentJournal, P], R]:
    """Holds the journal's lock during the operation, and lets ``DiskActivity`` know of the outermost one."""

    @wraps(operation)
    def locked(journal: SegmentJournal, *args: P.args, **kwargs: P.kwargs) -> R:
        with journal.lock:
            is_outermost = journal.activity.begin(journal)
            try:
                return operation(journal, *args, **kwargs)
            finally:
                if is_outermost:
                    journal.activity.end(journal)

    return locked


class SegmentJournal:
    """Safe from many threads. ``lock`` is held for each change of files, and orders the writers of one segment.

    All methods raise OSError if the disk fails; then the caller calls ``give_up``.
    """

    def __init__(
        self,
        *,
        folder: Path,
        opened: pb.OpenSegment,
        meter: JournalMeter,
        recycled: RecycledFiles,
        writer: FileWriter,
        activity: DiskActivity,
        process: ProcessJournal,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.lock = make_rlock(BrokerLock.JOURNAL)
        self.folder = folder
        self._opened = opened
        self._meter = meter
        self._recycled = recycled
        self._writer = writer
        self.activity = activity
        self._encoder = RowEncoder()
        self._process = process
        self._file_bytes = file_bytes
        self._created = False
        self.ended = False
        """Nothing is written any more."""
        self.trimmed_to = 0
        self._files: deque[_File] = deque()
        self._fd: int | None = None

    @_on_disk
    def create(self) -> None:
        """Records that this process hosts the segment. Repeating it is harmless."""
        if not self._created and not self.ended:
            # A folder with a definition always has a file of records, so that a missing one is noticed.
            self._process.begin()
            self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._begin_file(0, reuse=False)
            write_definition(self.folder, self._opened)
            self._created = True

    @_on_disk
    def append(self, first: int, end: int, header: bytes, rows: pa.RecordBatch | bytes) -> pa.Buffer | None:
        """Writes one record with the messages ``first .. end - 1``. After an error part of it may be there.

        ``rows`` may be encoded already, as by ``RecordBatch.serialize``. They are empty if the header has them.

        Returns the encoded rows as the file has them, if they are worth it. The file stays as it is until nobody refers
        to them any more.

        May raise ArrowException.
        """
        if self.ended:
            return None
        if not self._created:
            self.create()
        body = [rows] if isinstance(rows, bytes) else self._encoder.encode(rows)
        if self._files[-1].at >= RECORDS_AT + self._file_bytes:
            self._begin_file(first, reuse=True)
        current = self._files[-1]
        assert self._fd is not None
        began = time.perf_counter()
        parts, record = record_parts(current.nonce, current.at, header, body)
        self._write(self._fd, parts, current.at)
        self._meter.written(record.end - current.at, time.perf_counter() - began)
        current.at, current.end = record.end, end
        self._resize(current, max(current.size, record.end + END_BYTES))
        if record.body_length < MAP_FROM_BYTES:
            return None
        try:
            return current.mapped.read(self._fd, record.body_at, record.body_length)
        except OSError:
            return None  # too many mappings: these rows stay in memory

    @_on_disk
    def trim(self, chain_end: int) -> None:
        """Gives up the files whose messages are all below the chain's end. The last file stays, without records."""
        self.trimmed_to = max(self.trimmed_to, chain_end)
        while self._files and self._files[0].end <= chain_end and (len(self._files) > 1 or self._fd is None):
            done = self._files.popleft()
            self._resize(done, 0)
            if self.ended:
                done.path.unlink(missing_ok=True)  # the disk failed
            else:
                self._recycled.add(done.path, done.mapped)
        if self._fd is None or self._files[-1].at == RECORDS_AT or self._files[-1].end > chain_end:
            return
        current = self._files[-1]
        if current.mapped.in_use():
            self._begin_file(current.end, reuse=False)
            self._files.popleft()
            self._resize(current, 0)
            self._recycled.add(current.path, current.mapped)
            return
        current.nonce = _new_nonce()
        self._write(self._fd, [empty_file(current.nonce)], 0)
        current.at = RECORDS_AT
        os.ftruncate(self._fd, EMPTY_BYTES)  # many segments that are seldom used must not keep large files
        self._resize(current, EMPTY_BYTES)
        renamed = records_file(self.folder, current.end)
        current.path.rename(renamed)
        current.path = renamed

    @_on_disk
    def remove(self) -> None:
        """Deletes the journal, because the segment is sealed. Nothing is written any more."""
        failed, self.ended = self.ended, True
        self.close()
        for file in self._files:
            self._resize(file, 0)
        mapped = {file.path.name: file.mapped for file in self._files}
        self._files.clear()
        if self._created:
            self._created = False
            _remove_folder(self.folder, None if failed else self._recycled, mapped)

    @_on_disk
    def give_up(self) -> None:
        """Marks the journal as incomplete after an error. Nothing is written any more, but files are still trimmed.

        Where nothing says that the segment was hosted, the mark is on the incarnation. Neither needs space on the disk.
        """
        if self.ended:
            return
        self.ended = True
        self._meter.failed()
        self.close()
        if not (self._created and mark_broken(self.folder)):
            self._process.mark_not_whole()

    def _begin_file(self, first: int, *, reuse: bool) -> None:
        """Lets records go to a new file, or to a recycled one if there is one and ``reuse`` is True."""
        path = records_file(self.folder, first)
        recycled = self._recycled.take() if reuse else None
        fd = os.open(path, _FLAGS, PRIVATE_FILE) if recycled is None else recycled.fd
        nonce = _new_nonce()
        try:
            self._write(fd, [empty_file(nonce)], 0)
            if recycled is not None:
                recycled.path.rename(path)  # only now, because its former records are not of this segment
        except BaseException:
            os.close(fd)
            raise
        if self._fd is not None:
            os.close(self._fd)
        self._fd = fd
        file = _File(path, first, nonce, 0)
        self._files.append(file)
        self._resize(file, EMPTY_BYTES if recycled is None else recycled.size)

    def _write(self, fd: int, parts: list[Bytes], at: int) -> None:
        """Writes all bytes. A call writes less than that if the disk becomes full, and the next one fails."""
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        while views:
            try:
                written = self._writer.write(fd, views, at)
            except OSError as error:
                if error.errno in _NO_SPACE and self._recycled.clear():
                    continue
                raise
            at += written
            done = 0
            while done < len(views) and written >= views[done].nbytes:
                written -= views[done].nbytes
                done += 1
            del views[:done]
            if written:
                views[0] = views[0][written:]

    def _resize(self, file: _File, size: int) -> None:
        self._meter.resized(size - file.size)
        file.size = size

    def close(self) -> None:
        """Closes the file. Everything that was written stays."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def remove_folder(folder: Path) -> None:
    """Deletes a segment's folder, and its parent if that is empty. Raises OSError."""
    _remove_folder(folder, None, {})


def _remove_folder(folder: Path, recycled: RecycledFiles | None, mapped: dict[str, MappedFile]) -> None:
    """As ``remove_folder``, but files of records are recycled. ``mapped`` by their names.

    The rename comes first, so that no recovery finds half of the files.
    """
    removed = folder.with_name(folder.name + REMOVED)
    folder.rename(removed)
    if recycled is not None:
        for path in list(removed.iterdir()):
            if first_offset(path) is not None:
                recycled.add(path, mapped.get(path.name))
    shutil.rmtree(removed)
    try:
        folder.parent.rmdir()
    except OSError:
        return  # it has other segments


def _new_nonce() -> int:
    return int.from_bytes(os.urandom(8), "little")
