"""The journal's folder: a lock, and a folder for each incarnation that wrote to it.

The lock is held for the life of the process. So whoever gets it knows that all former incarnations have ended.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import BaseModel, ValidationError

from smq_broker.journal.recovery import RecoveredLog, recover
from smq_broker.journal.segment_files import folder_name, name_of, segment_folder
from smq_broker.journal.segment_journal import JournalMeter, SegmentJournal
from smq_core.errors import InvalidRequest
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.boot import boot_id

LOCK = "lock"
PROCESS = "process.json"
LOCK_WAIT_SECONDS = 5.0
LOCK_CHECK_SECONDS = 0.05

log = structlog.get_logger(__name__)


class _Process(BaseModel):
    """Written once by each process. ``boot`` is the boot of its machine, ``root`` the filer's root that it used."""

    boot: str
    root: str


@dataclass(slots=True)
class FormerIncarnation:
    """What a process that has ended left. ``same_root`` is True if it used the filer's root that this process uses."""

    incarnation: str
    folder: Path
    same_root: bool
    logs: list[RecoveredLog] = field(default_factory=list)

    def remove(self) -> None:
        """Deletes all that it left."""
        shutil.rmtree(self.folder, ignore_errors=True)


class JournalFolder:
    """One process's journal. ``root`` identifies the filer's root."""

    def __init__(self, folder: Path, incarnation: str, root: str, meter: JournalMeter) -> None:
        self._folder = folder
        self._incarnation = incarnation
        self._meter = meter
        self._process = _Process(boot=boot_id(), root=root)
        self._own = folder / folder_name(incarnation)
        self._lock_fd: int | None = None

    def lock(self, wait: float = LOCK_WAIT_SECONDS) -> None:
        """Waits some seconds for a former process to end. Raises InvalidRequest if the folder cannot be used."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
            if self._own.exists():
                raise InvalidRequest(
                    f"the incarnation {self._incarnation} has been used before: give each start of a broker a new one"
                )
        except OSError as error:
            raise InvalidRequest(f"the journal {self._folder} cannot be used: {error}") from error

    def recover(self) -> list[FormerIncarnation]:
        """What former incarnations left. Those without any segment are deleted, foreign folders are left alone."""
        found = []
        for folder in sorted(it for it in self._folder.iterdir() if it.is_dir() and it != self._own):
            try:
                is_ours = (folder / PROCESS).exists() or any(folder.glob("*/*/*.json"))
                former = self._recover(folder) if is_ours else None
            except OSError as error:
                log.error("journal.unreadable", folder=str(folder), error=str(error))
                continue
            if former is not None and former.logs:
                found.append(former)
            elif former is not None:
                former.remove()
        return found

    def _recover(self, folder: Path) -> FormerIncarnation:
        process = _read_process(folder)
        same_root = process is not None and process.root == self._process.root
        return FormerIncarnation(name_of(folder), folder, same_root, recover(folder, self._problem(process)))

    def begin(self) -> None:
        """Creates the folder of this incarnation, before the first segment. Raises InvalidRequest."""
        try:
            self._own.mkdir()
            (self._own / PROCESS).write_text(self._process.model_dump_json())
        except OSError as error:
            raise InvalidRequest(f"the journal {self._folder} cannot be written: {error}") from error

    def segment(self, opened: pb.OpenSegment) -> SegmentJournal:
        """The journal of a segment that this incarnation hosts. Nothing is written before ``create``."""
        folder = segment_folder(self._own, opened.topic.uid, opened.segment.name)
        return SegmentJournal(folder, opened, self._meter)

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


def _read_process(folder: Path) -> _Process | None:
    try:
        return _Process.model_validate_json((folder / PROCESS).read_bytes())
    except (OSError, ValidationError):
        return None
