"""The journals of simulated brokers, on disks that outlive their processes.

A broker's name decides its disk, as with a Pod whose container restarts, or with a folder in local mode. A record is
one replication message. A process that ends while it writes one leaves it torn, or whole but not counted yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from smq_core.replica.log_entries import Entry, ReplicaConfig, ReplicationMessage
from support.sim.engine.world import MS

if TYPE_CHECKING:
    from support.sim.brokers.hosted_segment import SimulatedSegment

# The most bytes of one record, unless one batch has more.
RECORD_BYTES = 1000
# The records of a file; records are removed in whole files.
FILE_RECORDS = 3


@dataclass(slots=True)
class JournalRecord:
    """``whole`` is false until its write has ended. ``readable`` is false if its checksum is wrong."""

    message: ReplicationMessage
    whole: bool = False
    readable: bool = True


@dataclass(frozen=True, slots=True)
class RecoveredRecords:
    """What a process finds in the journal of a former one.

    ``entries`` are contiguous. ``watermark`` is the highest one of any readable record. ``complete`` is false if
    something shows that there was more. ``first`` is where the first file begins, also if its records are torn.
    """

    entries: tuple[Entry, ...]
    watermark: int
    complete: bool
    first: int


@dataclass(slots=True)
class SimulatedJournal:
    """The journal of one segment and incarnation.

    ``end`` is the offset below which entries were written. ``broken`` is the mark that a write failed. ``intact`` is
    the truth for the checker: every entry below ``end`` that is not in the chain is in a readable record.
    ``rolled_back`` means that the last records are gone, and nothing shows it.
    """

    config: ReplicaConfig
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

    def recover(self, dice: Random) -> RecoveredRecords:
        """Reads the journal after the end of its process. A torn record at the end was never counted."""
        first = self.records[0].message.base_offset if self.records else 0
        if self.records and not self.records[-1].whole and dice.random() < 0.5:
            self.records.pop()
        entries: list[Entry] = []
        watermark, complete = 0, not (self.broken or self.other_boot)
        contiguous = True
        for record in self.records:
            if not record.readable:
                contiguous = complete = False
                continue
            watermark = max(watermark, record.message.watermark)
            if entries and record.message.base_offset != entries[-1].end:
                contiguous = complete = False
            if contiguous:
                entries += record.message.entries
        return RecoveredRecords(tuple(entries), watermark, complete, first)

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
        for _ in range(min(dice.randint(1, 4), len(self.records))):
            self.records.pop()
            self.intact, self.rolled_back = False, True


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

    def begin(self, incarnation: str) -> None:
        """A process begins to use the disk."""
        self.used_by.append(incarnation)
        self.whole[incarnation] = True

    def open(self, config: ReplicaConfig) -> SimulatedJournal | None:
        """The journal of a segment that this incarnation hosts now; None if the disk does not take it."""
        if self.full:
            self.whole[config.incarnation] = False
            return None
        journal = self.journals.setdefault(config.incarnation, {})[config.segment] = SimulatedJournal(config)
        return journal

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


class JournalWriter:
    """Writes the entries of one hosted segment, one record after another, and calls ``written`` after each."""

    def __init__(self, hosted: SimulatedSegment, disk: SimulatedDisk) -> None:
        self._hosted = hosted
        self._disk = disk
        self._busy = False
        self.journal = disk.open(hosted.machine.config)
        if self.journal is None:
            hosted.machine.journal_failed()

    @property
    def failed(self) -> bool:
        return self.journal is None or self.journal.broken

    def pump(self) -> None:
        """Begins the next write if there is something to write and none is in progress."""
        journal, machine = self.journal, self._hosted.machine
        while journal is not None and not (self._busy or journal.broken):
            journal.trim(machine.chain_end)
            message = machine.unjournaled(RECORD_BYTES)
            if message is None:
                return
            if self._disk.full:
                self._fail(journal)
                return
            record = JournalRecord(message)
            journal.records.append(record)
            world = self._hosted.broker.world
            delay = world.between(0, self._disk.slowness) if self._disk.slowness else 0
            if delay < MS // 10:
                self._written(journal, record)
            else:
                self._busy = True
                self._hosted.process.after(delay, lambda record=record: self._finish(journal, record))

    def remove(self) -> None:
        """The segment is sealed."""
        if self.journal is not None:
            self.journal.remove()
            self._disk.drop(self._hosted.machine.config.incarnation, self._hosted.name)

    def _finish(self, journal: SimulatedJournal, record: JournalRecord) -> None:
        self._busy = False
        if self._disk.full:
            self._fail(journal)
        else:
            self._written(journal, record)
        self._hosted.journaled()

    def _written(self, journal: SimulatedJournal, record: JournalRecord) -> None:
        record.whole = True
        journal.end = _end(record)
        self._hosted.machine.journal_written(journal.end)

    def _fail(self, journal: SimulatedJournal) -> None:
        hosted = self._hosted
        hosted.broker.world.note(hosted.process.name, hosted.name, "the journal fails")
        journal.broken, journal.intact = True, False
        hosted.machine.journal_failed()


def _end(record: JournalRecord) -> int:
    return record.message.entries[-1].end
