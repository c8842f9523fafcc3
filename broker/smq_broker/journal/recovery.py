"""Reads what a process that has ended left in its journal. Nothing here changes a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import structlog
from google.protobuf.message import DecodeError

from smq_broker.journal.journal_files import (
    BROKEN_DEFINITION,
    DEFINITION,
    MAX_FILE_BYTES,
    REMOVED,
    first_offset,
    read_definition,
    read_regular,
)
from smq_broker.journal.record_format import (
    EMPTY_BYTES,
    FileState,
    ScannedFile,
    StoredRecord,
    readable_records,
    scan,
)
from smq_proto.v1 import data_pb2 as pb

_DESCRIPTIONS = {
    FileState.TORN: "damaged: only the last file can end in the middle of a record",
    FileState.DAMAGED: "damaged",
    FileState.FOREIGN: "of another version of the broker, which cannot be read",
}

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RecoveredLog:
    """What is left of one segment: messages ``first .. end - 1``.

    It is complete if ``problem`` is None. Then it has all messages that the process counted for the watermark, apart
    from those that the filer has. Otherwise they are the ones before the first damage. ``watermark`` is the highest one
    that any readable record mentions: the messages below it were acked.
    """

    folder: Path
    opened: pb.OpenSegment
    problem: str | None = None
    first: int = 0
    end: int = 0
    watermark: int = 0
    size: int = 0
    """In bytes."""
    _records: list[tuple[pa.Buffer, StoredRecord]] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self.problem is None

    def messages(self, schema: pa.Schema) -> Iterator[tuple[pb.ReplicationBatch, pa.RecordBatch | None]]:
        """The replicated messages in order, with their rows. Rows refer to the mapped files and are not copied.

        There is no batch if the header has the rows.

        Raises ArrowInvalid if the rows do not have this schema.
        """
        for file, record in self._records:
            body = file.slice(record.body_at, record.body_length)
            yield _header(file, record), pa.ipc.read_record_batch(body, schema) if body.size else None

    def release(self) -> None:
        """Frees the mapped files."""
        self._records.clear()


@dataclass(slots=True)
class RecoveredFolder:
    """What is left of the segments of one incarnation. ``unusable``: of some nothing says what they were."""

    logs: list[RecoveredLog] = field(default_factory=list)
    unusable: bool = False


def recover(folder: Path, problem: str | None) -> RecoveredFolder:
    """The logs of all segments in the folder of one incarnation.

    ``problem`` says why none of them can be complete, if that is known. Raises OSError if the folder cannot be listed.
    """
    found = RecoveredFolder()
    for topic in sorted(it for it in folder.iterdir() if it.is_dir()):
        for segment in sorted(it for it in topic.iterdir() if it.is_dir()):
            if segment.name.endswith(REMOVED):
                continue
            recovered = _recover_segment(segment, problem)
            if recovered is not None:
                found.logs.append(recovered)
            elif _was_opened(segment):
                found.unusable = True
                log.error(
                    "journal.unusable",
                    folder=str(segment),
                    advice=f"{DEFINITION} is missing or damaged, so only other replicas can have these messages",
                )
    return found


def _was_opened(folder: Path) -> bool:
    """Whether a segment without a readable definition may have had messages. Its first file is created before that."""
    records = [path for path in folder.iterdir() if first_offset(path) is not None]
    defined = (folder / DEFINITION).exists() or (folder / BROKEN_DEFINITION).exists()
    return defined or any(first_offset(path) or path.stat().st_size > EMPTY_BYTES for path in records)


def _recover_segment(folder: Path, problem: str | None) -> RecoveredLog | None:
    """None if it was never opened, or nothing says what it was: then this process holds nothing of it."""
    opened = None
    for name in (DEFINITION, BROKEN_DEFINITION):
        try:
            opened = read_definition(folder / name)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.error("journal.unreadable", folder=str(folder), error=str(error))
        if name == BROKEN_DEFINITION:
            problem = problem or "a write to this journal failed"
        break
    if opened is None:
        return None
    recovered = RecoveredLog(folder, opened, problem)
    try:
        _read_files(recovered)
    except (OSError, DecodeError, pa.ArrowException) as error:
        recovered.problem = recovered.problem or f"it cannot be read: {error}"
    return recovered


def _read_files(recovered: RecoveredLog) -> None:
    """Adds the records of all files up to the first damage; from later ones it takes the watermark."""
    files = sorted((first, path) for path in recovered.folder.iterdir() if (first := first_offset(path)) is not None)
    contiguous = True
    if files:
        recovered.first = recovered.end = files[0][0]
    else:
        _damaged(recovered, "its files are missing")
    for number, (first, path) in enumerate(files):
        # The file is read and not only mapped, because a failing disk would end the process when the mapping is used.
        data = read_regular(path, MAX_FILE_BYTES)
        scanned = scan(data)
        recovered.size += scanned.size
        if not scanned.records and scanned.state in (FileState.WHOLE, FileState.TORN):
            # The last file has no records after all messages reached the filer, or if the process ended at once.
            if first > recovered.end or number + 1 < len(files):
                contiguous = _damaged(recovered, f"{path.name} is empty")
            continue
        mapped = pa.memory_map(str(path)).read_buffer()
        contiguous = contiguous and _add_records(recovered, mapped, scanned, first, path.name)
        torn_at_the_end = scanned.state is FileState.TORN and number + 1 == len(files)
        if scanned.state is not FileState.WHOLE and not torn_at_the_end:
            contiguous = _damaged(recovered, f"{path.name} is {_DESCRIPTIONS[scanned.state]}")
        if not contiguous:
            for record in readable_records(data):
                recovered.watermark = max(recovered.watermark, _header(mapped, record).watermark)


def _add_records(recovered: RecoveredLog, file: pa.Buffer, scanned: ScannedFile, file_first: int, name: str) -> bool:
    """False after a gap between records."""
    if file_first != recovered.end:
        return _damaged(recovered, f"messages between {recovered.end} and {file_first} are missing")
    for record in scanned.records:
        header = _header(file, record)
        if header.base_offset != recovered.end:
            return _damaged(recovered, f"{name} has a gap after message {recovered.end}")
        recovered.end += sum(entry.rows for entry in header.entries)
        recovered.watermark = max(recovered.watermark, header.watermark)
        recovered._records.append((file, record))
    return True


def _damaged(recovered: RecoveredLog, problem: str) -> bool:
    recovered.problem = recovered.problem or problem
    return False


def _header(file: pa.Buffer, record: StoredRecord) -> pb.ReplicationBatch:
    return pb.ReplicationBatch.FromString(bytes(file.slice(record.header_at, record.header_length)))
