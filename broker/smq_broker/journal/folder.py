"""The journal's folder: a lock, and a folder for each incarnation that wrote to it.

The lock is held for the life of the process. So whoever gets it knows that all former incarnations have ended.

A disk that is full or cannot be written keeps no broker from its work: segments open without a journal there. Whether
it can be written is tried again with each segment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import BaseModel, ValidationError

from smq_broker.journal.disk_activity import DiskActivity
from smq_broker.journal.file_writer import FileWriter
from smq_broker.journal.journal_files import (
    MAX_DOCUMENT_BYTES,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    folder_name,
    name_of,
    read_regular,
    segment_folder,
)
from smq_broker.journal.recovery import RecoveredLog, recover
from smq_broker.journal.recycled_files import RecycledFiles
from smq_broker.journal.segment_journal import JournalMeter, SegmentJournal
from smq_core.errors import InvalidRequest
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.boot import boot_id
from smq_storage.process.locks import make_lock

LOCK = "lock"
PROCESS = "process.json"
UNFINISHED_PROCESS = f"{PROCESS}.tmp"
# The name of ``process.json`` after a segment was opened without a journal.
NOT_WHOLE_PROCESS = "process.not-whole.json"
# How many former incarnations without any log are kept: their journals prove what they did not host.
MAX_WITHOUT_LOGS = 10
# No incarnation has a folder of this name, because a plus is quoted there.
RECYCLED = "+recycled"
# The errors of a disk that is full or fails, and not of a folder that is the wrong one.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
LOCK_WAIT_SECONDS = 5.0
LOCK_CHECK_SECONDS = 0.05

log = structlog.get_logger(__name__)


class _Process(BaseModel):
    """Written once by each process. ``boot`` is the boot of its machine, ``root`` the filer's root that it used.

    The process renames this file before it hosts a segment without a journal.
    """

    boot: str
    root: str


@dataclass(slots=True, kw_only=True)
class FormerIncarnation:
    """What a process that has ended left. ``same_root`` is True if it used the filer's root that this process uses.

    Its journal is ``whole`` if every unsealed segment of which it acked a message has a log, complete or not.
    """

    incarnation: str
    folder: Path
    same_root: bool
    logs: list[RecoveredLog] = field(default_factory=list)
    whole: bool = False

    def remove(self) -> None:
        """Deletes all that it left."""
        shutil.rmtree(self.folder, ignore_errors=True)


class JournalFolder:
    """One process's journal. ``root`` identifies the filer's root."""

    def __init__(
        self, *, folder: Path, incarnation: str, root: str, meter: JournalMeter, activity: DiskActivity
    ) -> None:
        self._folder = folder
        self._incarnation = incarnation
        self._meter = meter
        self._process = _Process(boot=boot_id(), root=root)
        self._own = folder / folder_name(incarnation)
        self._recycled = RecycledFiles(folder / RECYCLED, meter.resized)
        self._writer = FileWriter()
        self._activity = activity
        self._lock_fd: int | None = None
        self._writes = make_lock()
        """Held while the incarnation's folder and its document are written."""
        self._begun = False
        self._is_whole = True

    def lock(self, wait: float = LOCK_WAIT_SECONDS) -> None:
        """Waits some seconds for a former process to end. Raises InvalidRequest if the folder cannot be used.

        If there is no lock, and the disk takes none, no process has ever used the folder, and this one does not either.
        """
        try:
            fd = self._open_lock()
            if fd is None:
                return
            deadline = time.monotonic() + wait
            while not _try_lock(fd):
                if time.monotonic() > deadline:
                    os.close(fd)
                    raise InvalidRequest(
                        f"the journal {self._folder} is used by another process: give each broker a folder of its own "
                        "(--journal)"
                    )
                time.sleep(LOCK_CHECK_SECONDS)
            self._lock_fd = fd
            self._recycled.remove_former()
            if self._own.exists():
                raise InvalidRequest(
                    f"the incarnation {self._incarnation} has been used before: give each start of a broker a new one"
                )
        except OSError as error:
            raise InvalidRequest(f"the journal {self._folder} cannot be used: {error}") from error

    def recover(self) -> list[FormerIncarnation]:
        """What former incarnations left. Those that say nothing are deleted, foreign folders are left alone.

        Raises InvalidRequest if the folder cannot be listed: the leader would take the former incarnations' journals
        for lost.
        """
        if self._lock_fd is None:
            return []
        try:
            folders = sorted(it for it in self._folder.iterdir() if it.is_dir() and it != self._own)
        except OSError as error:
            raise InvalidRequest(
                f"the journal {self._folder} cannot be read, and it may have messages that nothing else has: {error}. "
                "Repair its disk, or give this broker another folder (--journal), which gives up what is in this one"
            ) from error
        with_logs, without = [], []
        for folder in folders:
            try:
                if [it.name for it in folder.iterdir()] == [UNFINISHED_PROCESS]:
                    shutil.rmtree(folder)  # its process ended at its beginning
                    continue
                is_ours = any((folder / it).exists() for it in (PROCESS, NOT_WHOLE_PROCESS))
                former = self._recover(folder) if is_ours or any(folder.glob("*/*/*.json")) else None
                if former is not None and former.logs:
                    with_logs.append(former)
                elif former is not None and former.whole:
                    without.append(((folder / PROCESS).stat().st_mtime, former))
                elif former is not None:
                    former.remove()
            except OSError as error:
                log.error("journal.unreadable", folder=str(folder), error=str(error))
        newest_first = [it for _, it in sorted(without, key=lambda found: found[0], reverse=True)]
        for former in newest_first[MAX_WITHOUT_LOGS:]:
            former.remove()
        return [*with_logs, *newest_first[:MAX_WITHOUT_LOGS]]

    def _recover(self, folder: Path) -> FormerIncarnation:
        is_marked = not (folder / PROCESS).exists()
        process = _read_process(folder / (NOT_WHOLE_PROCESS if is_marked else PROCESS))
        problem = self._problem(process)
        found = recover(folder, problem)
        same_root = process is not None and process.root == self._process.root
        whole = same_root and not is_marked and problem is None and not found.unusable
        return FormerIncarnation(
            incarnation=name_of(folder), folder=folder, same_root=same_root, logs=found.logs, whole=whole
        )

    def begin(self) -> None:
        """Creates the folder of this incarnation, unless it is there. Raises OSError."""
        with self._writes:
            if self._begun:
                return
            if self._lock_fd is None:
                raise OSError(errno.ENOSPC, "its disk had no space for a lock: free it, then start this broker again")
            self._own.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            unfinished = self._own / UNFINISHED_PROCESS
            try:
                unfinished.write_text(self._process.model_dump_json())
                unfinished.rename(self._own / (PROCESS if self._is_whole else NOT_WHOLE_PROCESS))
            except OSError:
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
                    self._own.rmdir()
                raise
            self._begun = True

    def segment(self, opened: pb.OpenSegment) -> SegmentJournal:
        """The journal of a segment that this incarnation hosts. Nothing is written before ``create``."""
        folder = segment_folder(self._own, opened.topic.uid, opened.segment.name)
        return SegmentJournal(
            folder=folder,
            opened=opened,
            meter=self._meter,
            recycled=self._recycled,
            writer=self._writer,
            activity=self._activity,
            process=self,
        )

    def mark_not_whole(self) -> None:
        """Lets no later process conclude that segments without a log were not hosted here. Raises OSError."""
        with self._writes:
            self._is_whole = False
            if self._begun:
                with suppress(FileNotFoundError):  # it is marked, or somebody deleted the file, which says the same
                    (self._own / PROCESS).rename(self._own / NOT_WHOLE_PROCESS)

    def _open_lock(self) -> int | None:
        """The file of the lock; None if there is none and the disk takes none. Raises OSError."""
        path = self._folder / LOCK
        try:
            self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # of a disk that cannot be written
        return None

    def unlock(self) -> None:
        """Lets another process use the folder. Only tests need it: the end of the process does the same."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _problem(self, process: _Process | None) -> str | None:
        """Why nothing of that process can be complete."""
        if process is None:
            return f"{PROCESS} is missing or damaged"
        if not process.boot or process.boot != self._process.boot:
            return "the machine was started again since, and what was not synced to the disk is gone"
        return None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_process(path: Path) -> _Process | None:
    try:
        return _Process.model_validate_json(read_regular(path, MAX_DOCUMENT_BYTES))
    except (OSError, ValidationError):
        return None
