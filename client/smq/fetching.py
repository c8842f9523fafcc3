"""Reads one segment from a position to its end: chunks from the filer, the tail from a replica."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from smq.inbox import Ended, Failed, Gone, Inbox, Rows
from smq.losses import lost_to_reader
from smq.tail import TailStream
from smq.view import TopicView
from smq_core.dag import is_removed
from smq_core.errors import SmqError, Unavailable
from smq_core.model import SealedSegment, Segment
from smq_storage.chain import Chain
from smq_storage.chunks import chunk_schema
from smq_storage.schemas import TIMESTAMP

log = logging.getLogger("smq")

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5
WARN_AFTER = 5.0
"""Seconds without a word from replicas or filer after which, each time, a warning says what is in the way."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read. ``since``: leave out messages appended before this time (microseconds)."""

    segment: str
    position: int
    sealed: SealedSegment | None = None
    since: int = 0


class Fetcher:
    """One thread that reads one segment ahead into the inbox. ``ordinal`` spreads readers over replicas."""

    def __init__(self, view: TopicView, inbox: Inbox[Fetcher], plan: Plan, max_bytes: int, ordinal: int) -> None:
        self.segment = plan.segment
        self.position = plan.position
        self.watermark = plan.sealed.end if plan.sealed is not None else plan.position
        self.heard = False
        """Whether the watermark is what a replica (or, without any, the chain) said."""
        self._view = view
        self._inbox = inbox
        self._sealed = plan.sealed
        self._since = plan.since
        self._max_bytes = max_bytes
        self._ordinal = ordinal
        self._schema = chunk_schema(view.known.topic.spec.schema)
        self._chain: Chain | None = None
        self._at_boundary = plan.position == 0
        self._stream: TailStream | None = None
        self._stop = threading.Event()
        self._well_at = time.monotonic()
        inbox.open(self)
        self._thread = threading.Thread(target=self._run, name=f"smq-fetch-{self.segment}", daemon=True)
        self._thread.start()

    def may_end(self) -> bool:
        """Whether the segment is sealed, or being sealed: its end and its successors are still to come."""
        living = self._living()
        return self._sealed is not None or living is None or bool(living.successors)

    def stop(self) -> None:
        """Ends reading; nothing of it reaches the inbox any more."""
        self._stop.set()
        self._inbox.drop(self)
        stream = self._stream
        if stream is not None:
            stream.abort()

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def check(self, now: float) -> None:
        """Gives a replica up that has fallen silent."""
        stream = self._stream
        if stream is not None and stream.silent(now):
            log.info("the tail of %s is silent: going on elsewhere", self.segment)
            stream.abort()

    # ---- the thread

    def _run(self) -> None:
        pause = 0.0
        try:
            while not self._stop.is_set():
                before = self.position
                try:
                    if self._read_once():
                        return
                except SmqError as error:
                    self._tell(error)
                    if not isinstance(error, Unavailable) and not error.retry and self._hopeless(error):
                        self._inbox.put(self, Failed(error))
                        return
                pause = FIRST_PAUSE if self.position > before else min(LONGEST_PAUSE, max(FIRST_PAUSE, pause * 2))
                self._stop.wait(pause)
        except Exception as error:
            log.exception("reading %s failed", self.segment)
            self._inbox.put(self, Failed(SmqError(f"reading {self.segment} failed: {error}")))

    def _tell(self, error: SmqError) -> None:
        if time.monotonic() - self._well_at < WARN_AFTER:
            log.info("reading %s: %s", self.segment, error.message)
        else:
            log.warning("reading %s does not go on, it is tried again: %s", self.segment, error.message)
            self._well_at = time.monotonic()

    @staticmethod
    def _hopeless(error: SmqError) -> bool:
        return error.code == "ChunkDamaged"

    def _read_once(self) -> bool:
        """The tail while the segment lives, then chunks as far as they go. True: all is read."""
        living = self._living()
        if self._sealed is None and living is not None:
            upto = self._read_tail(living)
            if upto is None:
                return True
        return self._read_chunks()

    def _living(self) -> Segment | None:
        return next((s for s in self._view.known.layout.segments if s.name == self.segment), None)

    def _read_tail(self, segment: Segment) -> int | None:
        """Reads until the stream ends. Returns the position reached, None when the segment's end was told."""
        replica = segment.replicas[self._ordinal % len(segment.replicas)]
        self._ordinal += 1  # another one next time
        stream = self._stream = TailStream(
            self.segment, self._view.known.topic.uid, replica, self._schema, self._view.network
        )
        if self._stop.is_set():
            return self.position
        try:
            for frame in stream.frames(self.position):
                self.watermark = max(self.watermark, frame.watermark)
                self.heard = True
                if frame.trimmed_to is None:
                    self._well_at = time.monotonic()
                if frame.table is not None:
                    self._at_boundary = False
                    if not self._put(frame.table, frame.first):
                        return self.position
                if frame.sealed is not None:
                    lost = frame.sealed.lost_from if frame.sealed.HasField("lost_from") else None
                    self._finish(frame.sealed.end, (lost, frame.sealed.lost_to) if lost is not None else None)
                    return None
                if frame.trimmed_to is not None:
                    self._ordinal -= 1  # nothing is wrong with this one
                    break
        except SmqError as error:
            if self._stop.is_set():
                return self.position
            log.info("the tail of %s at %s: %s", self.segment, replica.broker, error.message)
            if isinstance(error, Unavailable) and error.code == "Unavailable":
                threading.Thread(target=self._view.hint, args=(replica.incarnation, error.message), daemon=True).start()
        finally:
            self._stream = None
        return self.position

    def _read_chunks(self) -> bool:
        """Chunks from the position on, as far as the chain goes. True: up to the segment's end."""
        chain = self._chain
        if chain is None:
            known = self._view.known
            chain = self._chain = Chain(self._view.store(), known.topic.name, known.topic.uid, self.segment)
        while not self._stop.is_set():
            if self._sealed is not None and self.position >= self._sealed.end:
                lost = self._sealed.lost_from
                self._finish(self._sealed.end, (lost, self._sealed.lost_to or lost) if lost is not None else None)
                return True
            first: int | None = self.position if self._at_boundary else chain.find(self.position)
            found = chain.read(first) if first is not None else None
            self._well_at = time.monotonic()
            if found is None:
                return self._at_end_of_chain(chain)
            info, table = found
            if info.sealed:
                self._finish(info.first, info.lost)
                return True
            self.watermark = max(self.watermark, info.end)
            self._at_boundary = True
            if not self._put(table, info.first):
                return False
        return False

    def _at_end_of_chain(self, chain: Chain) -> bool:
        """No chunk has the position: not yet, or never again."""
        if self._sealed is not None:
            # The index knew the end, so the chunk was there: retention has removed it.
            return self._gone(self._sealed.end)
        self.heard = True
        if not self._at_boundary or self._living() is None:
            seal = chain.seal()
            if seal is not None and seal.first <= self.position:
                self._finish(seal.first, seal.lost)
                return True
            if seal is None and self._living() is None:
                return self._look_into_the_past()
        return False

    def _look_into_the_past(self) -> bool:
        """It has left the layout, and there is no seal: retention came before this reader. True: all is read."""
        past = self._view.past()
        self._sealed = past.sealed.get(self.segment)
        if self._sealed is None and is_removed(self.segment, past.removed or ()):
            return self._gone(past.ends.get(self.segment))
        return False

    def _gone(self, end: int | None) -> bool:
        if end is None or end > self.position:
            self._inbox.put(self, Gone(self.position, end))
        self._inbox.put(self, Ended(self.position if end is None else end))
        return True

    def _put(self, table: pa.Table, first: int) -> bool:
        """Puts rows in from the position on, in parts of a fair size. False: not wanted any more."""
        skip = self.position - first
        if skip > 0:
            table = table.slice(skip)
        if self._since:
            table = self._leave_out(table)
        rows, nbytes, at = table.num_rows, table.nbytes, self.position
        per_part = max(1, rows * self._max_bytes // max(1, nbytes))
        for start in range(0, rows, per_part):
            part = table.slice(start, per_part)
            size = nbytes * part.num_rows // rows
            if not self._inbox.put(self, Rows(part, at + start, size)):
                return False
        self.position = at + rows
        return True

    def _leave_out(self, table: pa.Table) -> pa.Table:
        """Without the rows that were appended too early. Append times never go back, so it is a prefix."""
        early = pc.sum(pc.less(table.column("appended"), pa.scalar(self._since, TIMESTAMP))).as_py() or 0
        self.position += early
        if early < table.num_rows:
            self._since = 0
        return table.slice(early)

    def _finish(self, end: int, lost: tuple[int, int] | None) -> None:
        told = lost_to_reader(self.position, end, lost)
        if told is not None:
            self._inbox.put(self, Gone(*told))
        self._inbox.put(self, Ended(end))


def wait_all(fetchers: list[Fetcher], seconds: float) -> None:
    """Joins the threads of stopped fetchers."""
    deadline = time.monotonic() + seconds
    for fetcher in fetchers:
        fetcher.join(max(0.0, deadline - time.monotonic()))
