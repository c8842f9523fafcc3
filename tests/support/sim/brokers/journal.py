"""The journals of simulated brokers, on disks that outlive their processes.

A broker's name decides its disk, as with a Pod whose container restarts, or with a folder in local mode. A record is
one replication message. A process that ends while it writes one leaves it torn, or whole but not counted yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from smq_broker.runtime.lock_order import BrokerLock
from smq_core.replica.log_entries import ReplicationMessage
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import make_lock
from support.sim.engine.virtual_threads import VirtualThread

# The records of a file; records are removed in whole files.
FILE_RECORDS = 3


@dataclass(slots=True)
class JournalRecord:
    """``whole`` is false until its write has ended. ``readable`` is false if its checksum is wrong."""

    message: ReplicationMessage
    whole: bool = False
    readable: bool = True


@dataclass(slots=True)
class SimulatedJournal:
    """The journal of one segment and incarnation.

    ``end`` is the offset below which entries were written. ``broken`` is the mark that a write failed. ``intact`` is
    the truth for the checker: every entry below ``end`` that is not in the chain is in a readable record.
    ``rolled_back`` means that the last records are gone, and nothing shows it.
    """

    opened: pb.OpenSegment
    records: deque[JournalRecord] = field(default_factory=deque)
    end: int = 0
    broken: bool = False
    other_boot: bool = False
    intact: bool = True
    rolled_back: bool = False

    def trim(self, chain_end: int) -> None:
        """Removes whole files whose entries are all in the chain."""
        old = sum(_end(record) <= chain_end for record in self.records)
        for _ in range(old if old == len(self.records) else old - old % FILE_RECORDS):
            self.records.popleft()

    def remove(self) -> None:
        """The segment is sealed."""
        self.records.clear()

    def recover(self, dice: Random) -> SimulatedRecoveredLog:
        """Reads the journal after the end of its process. A torn record at the end was never counted."""
        first = self.records[0].message.base_offset if self.records else 0
        if self.records and not self.records[-1].whole and dice.random() < 0.5:
            self.records.pop()
        log = SimulatedRecoveredLog(self, first)
        if self.broken or self.other_boot:
            log.problem = "a write failed, or the machine was restarted"
        contiguous = True
        for record in self.records:
            message = record.message
            if record.readable:
                log.watermark = max(log.watermark, message.watermark)
            if not record.readable or (log.held and message.base_offset != log.end):
                contiguous, log.problem = False, "a record is missing or damaged"
            if contiguous:
                log.held.append(message)
                log.end = _end(record)
        return log

    # ---- damage, after the end of the process

    def truncate(self, dice: Random) -> None:
        """The last records are unreadable."""
        for record in list(self.records)[-dice.randint(1, 3) :]:
            record.readable = self.intact = False

    def damage(self, dice: Random) -> None:
        """One record is unreadable."""
        if self.records:
            dice.choice(self.records).readable = self.intact = False

    def lose_head(self, dice: Random) -> None:
        """The first records are gone. A comparison with the chain shows it, unless no record is left."""
        for _ in range(min(dice.randint(1, 3), len(self.records))):
            self.records.popleft()
            self.intact, self.rolled_back = False, not self.records

    def lose_page_cache(self, dice: Random) -> None:
        """The machine was restarted, so nobody knows what else is missing."""
        self.other_boot, self.intact = True, False

    def roll_back(self, dice: Random) -> None:
        """An older copy of the journal is there, which looks complete."""
        for _ in range(min(dice.choice([1, 3, 10, 30]), len(self.records))):
            self.records.pop()
            self.intact, self.rolled_back = False, True


class SimulatedRecoveredLog:
    """Stands in for ``RecoveredLog``: messages ``first .. end - 1``. ``problem`` says what is missing."""

    size = 0

    def __init__(self, journal: SimulatedJournal, first: int) -> None:
        self.journal = journal
        self.opened = journal.opened
        self.folder = f"{journal.opened.incarnation}/{journal.opened.segment.name}"
        self.problem: str | None = None
        self.first = self.end = first
        self.watermark = 0
        self.held: list[ReplicationMessage] = []

    @property
    def complete(self) -> bool:
        return self.problem is None

    def messages(self, schema: object) -> list[tuple[ReplicationMessage, None]]:
        return [(message, None) for message in self.held]

    def release(self) -> None:
        """It has mapped nothing."""


class SimulatedFormer:
    """Stands in for ``FormerIncarnation``."""

    same_root = True

    def __init__(self, disk: SimulatedDisk, incarnation: str, logs: list[SimulatedRecoveredLog]) -> None:
        self.folder = self
        self.incarnation = incarnation
        self.logs = logs
        self._disk = disk

    @property
    def whole(self) -> bool:
        return self._disk.whole.get(self.incarnation, False)

    def remove(self) -> None:
        self._disk.journals.pop(self.incarnation, None)
        self._disk.whole.pop(self.incarnation, None)

    def remove_log(self, segment: str) -> None:
        self._disk.drop(self.incarnation, segment)


DAMAGES: dict[str, Callable[[SimulatedJournal, Random], None]] = {
    "truncated": SimulatedJournal.truncate,
    "damaged": SimulatedJournal.damage,
    "headless": SimulatedJournal.lose_head,
    "other boot": SimulatedJournal.lose_page_cache,
    "older": SimulatedJournal.roll_back,
}


class SimulatedDisk:
    """The journals of a broker's incarnations. ``full`` lets every write fail; writes take up to ``slowness``."""

    def __init__(self, slowness: int = 0) -> None:
        self.journals: dict[str, dict[str, SimulatedJournal]] = {}
        self.used_by: list[str] = []
        """All processes that used this disk."""
        self.whole: dict[str, bool] = {}
        """Of which processes something is left, and whether it certainly names all segments that they hosted."""
        self.slowness = slowness
        self.full = False
        self.dice = Random(slowness)

    def begin(self, incarnation: str) -> None:
        """A process begins to use the disk."""
        self.used_by.append(incarnation)
        self.whole[incarnation] = True

    def open(self, opened: pb.OpenSegment) -> SimulatedJournal | None:
        """The journal of a segment that this incarnation hosts now; None if the disk does not take it."""
        if self.full:
            self.whole[opened.incarnation] = False
            return None
        journal = self.journals.setdefault(opened.incarnation, {})[opened.segment.name] = SimulatedJournal(opened)
        return journal

    def segment(self, opened: pb.OpenSegment) -> SimulatedSegmentJournal:
        """As ``JournalFolder.segment``."""
        return SimulatedSegmentJournal(self, opened)

    def former(self) -> dict[str, dict[str, SimulatedJournal]]:
        """What former processes left: journals of segments, or a whole journal without any. Others are removed."""
        found = {incarnation: self.journals.get(incarnation, {}) for incarnation in self.whole}
        kept = {incarnation: held for incarnation, held in found.items() if held or self.whole[incarnation]}
        self.whole = {incarnation: self.whole[incarnation] for incarnation in kept}
        return kept

    def drop(self, incarnation: str, segment: str) -> None:
        """Removes the journal of a segment."""
        held = self.journals.get(incarnation, {})
        held.pop(segment, None)
        if not held:
            self.journals.pop(incarnation, None)

    def reboot(self, incarnation: str, dice: Random) -> None:
        """The machine was restarted, so nobody knows which files of that process are missing."""
        self.whole[incarnation] = False
        for segment in list(self.journals.get(incarnation, {})):
            if dice.random() < 0.3:
                self.drop(incarnation, segment)

    def destroy(self) -> None:
        """The Pod is gone, and its disk with it."""
        for held in self.journals.values():
            for journal in held.values():
                journal.intact = False
        self.journals.clear()
        self.whole.clear()


class SimulatedSegmentJournal:
    """Stands in for ``SegmentJournal``. The simulation's ``encode_message`` leaves a message as it is."""

    def __init__(self, disk: SimulatedDisk, opened: pb.OpenSegment) -> None:
        self.lock = make_lock(BrokerLock.JOURNAL)
        self.folder = opened.segment.name
        self.ended = False
        self.trimmed_to = 0
        self.journal: SimulatedJournal | None = None
        self._disk = disk
        self._opened = opened

    @property
    def failed(self) -> bool:
        return self.journal is None or self.journal.broken

    def create(self) -> None:
        with self.lock:
            self.journal = self._disk.open(self._opened)
            if self.journal is None:
                raise OSError("the disk is full")

    def append(self, first: int, end: int, header: ReplicationMessage, rows: object) -> None:
        """The caller holds the lock. It takes as long as the disk does."""
        record = JournalRecord(header)
        if not self._disk.full:
            self._journal.records.append(record)
            if self._disk.slowness:
                VirtualThread.current().wait(self._disk.dice.randint(0, self._disk.slowness))
        if self._disk.full or self.ended:
            raise OSError("the disk is full")
        record.whole = True
        self._journal.end = end

    def trim(self, chain_end: int) -> None:
        with self.lock:
            self.trimmed_to = chain_end
            if not self.ended:
                self._journal.trim(chain_end)

    def remove(self) -> None:
        """The segment is sealed."""
        self.ended = True
        if self.journal is not None:
            self.journal.remove()
            self._disk.drop(self._opened.incarnation, self._opened.segment.name)

    def give_up(self) -> None:
        """Marks the journal as broken."""
        self.ended = True
        if self.journal is not None:
            self.journal.broken, self.journal.intact = True, False

    @property
    def _journal(self) -> SimulatedJournal:
        assert self.journal is not None
        return self.journal


def _end(record: JournalRecord) -> int:
    return record.message.entries[-1].end
