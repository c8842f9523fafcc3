"""Reads exactly the offsets that were planned, wherever they are by now.

Between the plan and the read a segment may be flushed, sealed, compacted, moved to other brokers or removed. So a read
goes on where it can: in the files, then in the memory of a replica, then again in the files. After each attempt that
did not end, index and layout are read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from smq.reading.tail_stream import TailFrame, TailStream
from smq.reading.topic_location import TopicLocation
from smq.transport.reader_channels import ReaderChannels
from smq_core.backoff import Backoff
from smq_core.errors import (
    CorruptChunk,
    CorruptDocument,
    DataLost,
    SmqError,
    StoreDenied,
    Unavailable,
    is_denial,
)
from smq_core.model.entities import Replica
from smq_core.reading.segment_dag import is_removed
from smq_storage.object_store.store import Store
from smq_storage.tables.pinned_reads import read_topic_files
from smq_storage.tables.range_reader import read_file
from smq_storage.tables.segment_files import StoredSegment, files_between
from smq_storage.uploads.large_values import find_large_values, read_large_value, with_large_value
from smq_storage.uploads.uploaded_files import read_referenced_rows

log = logging.getLogger(__name__)

# The time without any message after which a read ends with Unavailable, whatever is tried.
GIVE_UP_AFTER_SECONDS = 120.0

# The time without a wanted message after which a living replica is left for another one.
TRY_ELSEWHERE_AFTER_SECONDS = 3.0

MIN_BACKOFF_SECONDS = 0.02
MAX_BACKOFF_SECONDS = 1.0

Found = Iterator[tuple[int, pa.Table]]


class RangeReader:
    """Reads ranges of one topic. For one thread at a time; cannot be sent to another process.

    on_loss: ``fail`` raises DataLost; ``skip`` logs a warning and goes on after the messages that are gone.
    give_up_after: seconds without any message after which a read raises Unavailable.
    """

    def __init__(
        self,
        location: TopicLocation,
        store: Store | None = None,
        *,
        on_loss: Literal["fail", "skip"] = "fail",
        give_up_after: float = GIVE_UP_AFTER_SECONDS,
    ) -> None:
        self._location = location
        self._store = store if store is not None else location.open_store()
        self._channels = ReaderChannels(location.topic, location.dialer())
        self._skips = on_loss == "skip"
        self._give_up_after = give_up_after

    def read(
        self,
        segment: StoredSegment,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
        replicas: Sequence[Replica] = (),
        flushed: int | None = None,
    ) -> Found:
        """The messages ``start .. stop - 1`` as tables, each with its first offset, in order and without a gap.

        ``columns`` are names of the chunk schema; a table lacks those that its messages' schema version does not have.
        ``replicas`` are those of the plan. Messages from ``flushed`` on are looked for at a replica first; None means
        in the files first. Values that are in objects are in the tables, if the column ``value`` is.

        Raises DataLost with the reason if messages were removed or lost, UnknownTopic if the topic was deleted,
        StoreDenied, CorruptChunk, CorruptDocument, and Unavailable with the last cause after ``give_up_after``.
        A secure release also raises PermissionDenied and Unauthenticated.
        """
        at = _Progress(
            segment=segment,
            replicas=tuple(replicas),
            position=start,
            stop=stop,
            deadline=time.monotonic() + self._give_up_after,
        )
        at.tail_first = flushed is not None and start >= flushed
        read = _columns_to_read(columns)
        backoff = Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        while at.position < at.stop:
            before = at.position
            for first, table in self._attempt(at, read):
                if table.num_rows == 0:
                    continue
                yield from self._filled(at, first, table, columns)
                at.deadline = time.monotonic() + self._give_up_after
            if at.position >= at.stop:
                return
            if at.position > before:
                backoff.reset()
            elif time.monotonic() > at.deadline:
                raise at.failure(self._give_up_after)
            time.sleep(backoff.increase())
            self._refresh(at)

    # ---- one attempt

    def _attempt(self, at: _Progress, columns: Sequence[str] | None) -> Found:
        """Reads as far as it comes. Errors after which another attempt may succeed are kept in ``at``."""
        sources = [self._from_files, self._from_tail]
        for source in reversed(sources) if at.tail_first and at.replicas else sources:
            if at.position >= at.stop:
                return
            try:
                yield from source(at, columns)
            except DataLost as error:
                self._on_loss(at, error)
            except CorruptDocument as error:
                if not at.segment.file_list:
                    raise
                log.warning("%s is read by its chunk chain: %s", at.segment.name, error.message)
                at.segment, at.unusable_file_list = replace(at.segment, file_list=""), at.segment.file_list
            except (CorruptChunk, StoreDenied):
                raise
            except SmqError as error:
                if (not error.retry and source == self._from_files) or is_denial(error):
                    raise
                log.info("reading %s from offset %s on: %s", at.segment.name, at.position, error.message)
                at.last_error = error
        at.tail_first = False

    def _from_files(self, at: _Progress, columns: Sequence[str] | None) -> Found:
        for file in files_between(self._store, at.segment, at.position, at.stop):
            if file.first > at.position:  # a chain without its beginning
                return
            yield from read_file(self._store, at.segment.name, file, at.position, at.stop, columns)

    def _from_tail(self, at: _Progress, columns: Sequence[str] | None) -> Found:
        if not at.replicas or at.segment.end is not None:
            return
        replica = at.replicas[at.turn % len(at.replicas)]
        at.turn += 1  # another one next time
        stream = TailStream(segment=at.segment.name, uid=at.segment.uid, replica=replica, channels=self._channels)
        leave_at = time.monotonic() + TRY_ELSEWHERE_AFTER_SECONDS
        with closing(stream.frames(at.position)) as frames:
            for frame in frames:
                if frame.trimmed_to is not None:
                    at.turn -= 1  # this replica is fine
                    return
                if frame.sealed is not None:
                    return  # the end and the losses are read from the files
                before = at.position
                yield from self._of_frame(at, frame, columns)
                if at.position >= at.stop:
                    return
                if at.position > before:
                    leave_at = time.monotonic() + TRY_ELSEWHERE_AFTER_SECONDS
                elif time.monotonic() > leave_at:
                    raise Unavailable(
                        f"{replica.broker} did not send message {at.position} of {at.segment.name}: its watermark is "
                        f"{frame.watermark}"
                    )

    def _of_frame(self, at: _Progress, frame: TailFrame, columns: Sequence[str] | None) -> Found:
        if frame.referenced is not None:
            yield from read_referenced_rows(self._store, frame.referenced, at.position, at.stop, columns)
        elif frame.table is not None:
            table = frame.table.slice(max(0, at.position - frame.first), at.stop - at.position)
            if columns is not None:
                table = table.select([name for name in columns if name in table.column_names])
            yield max(at.position, frame.first), table

    def _filled(self, at: _Progress, first: int, table: pa.Table, columns: Sequence[str] | None) -> Found:
        """The table, with the values that are in objects, which comes in parts if it has such; moves the position."""
        if first != at.position:
            raise CorruptChunk(f"{at.segment.name} has message {first} where {at.position} should be")
        wanted = table.column_names if columns is None else [name for name in columns if name in table.column_names]
        begin = 0
        for row, large in find_large_values(table).items():
            yield from _part(at, table.slice(begin, row - begin).select(wanted))
            try:
                value = read_large_value(self._store, at.segment.uid, large, at.segment.name, at.position)
            except DataLost as error:
                if not self._skips:
                    raise
                self._skip(at, error, at.position + 1)
            else:
                yield from _part(at, with_large_value(table.slice(row, 1), value).select(wanted))
            begin = row + 1
        yield from _part(at, table.slice(begin).select(wanted))

    # ---- between attempts

    def _on_loss(self, at: _Progress, error: DataLost) -> None:
        """Messages were not where they were expected: they are elsewhere by now, or they are gone."""
        segment, upload = at.segment, error.path
        self._refresh(at)
        if at.position >= at.stop or at.segment != segment:
            return  # it was skipped, or another file list names other files
        if not self._skips:
            raise error
        self._skip(at, error, error.stop if upload and error.stop is not None else at.stop)

    def _refresh(self, at: _Progress) -> None:
        """Reads index and layout again. Raises DataLost, UnknownTopic."""
        topic = self._location.topic
        try:
            files = read_topic_files(self._store, topic, self._location.uid)
        except StoreDenied:
            raise
        except Unavailable as error:
            at.last_error = error
            return
        name = at.segment.name
        entry = next((it for it in files.index.entries if it.name == name), None)
        if entry is not None:
            found = StoredSegment.of(topic, self._location.uid, entry)
            if found.file_list == at.unusable_file_list:
                found = replace(found, file_list="")
            at.segment, at.replicas = found, ()
            if at.position >= entry.end:
                lost = entry.lost
                raised = DataLost(
                    f"{name} ends at offset {entry.end}: the messages from {at.position} to {at.stop - 1} were lost "
                    "with all of its replicas before they were in a file",
                    segment=name,
                    start=at.position,
                    stop=at.stop,
                    at_least=lost is not None and lost.at_least,
                )
                self._fail_or_skip(at, raised)
        elif name in files.layout:
            at.segment = StoredSegment(topic=topic, uid=self._location.uid, name=name)
            at.replicas = files.layout.segment(name).replicas
        elif is_removed(name, files.index.removed):
            ends = {it.name: it.end for it in files.index.removed_segments}
            raised = DataLost(
                f"retention has removed {name}, with the messages from offset {at.position} on that were to be read: "
                "keep messages for longer, read sooner, or pin the files of a long read",
                segment=name,
                start=at.position,
                stop=min(at.stop, ends.get(name, at.stop)),
            )
            self._fail_or_skip(at, raised)
        else:
            raise DataLost(f"the topic {topic} has no segment {name}", segment=name, start=at.position, stop=at.stop)

    def _fail_or_skip(self, at: _Progress, error: DataLost) -> None:
        if not self._skips:
            raise error
        self._skip(at, error, at.stop)

    def _skip(self, at: _Progress, error: DataLost, position: int) -> None:
        log.warning("messages %s..%s of %s are left out: %s", at.position, position - 1, at.segment.name, error.message)
        at.position = min(position, at.stop)


@dataclass(slots=True, kw_only=True)
class _Progress:
    """One read: the messages ``position .. stop - 1`` are to be read, and where they were last known to be."""

    segment: StoredSegment
    replicas: tuple[Replica, ...]
    position: int
    stop: int
    deadline: float
    tail_first: bool = False
    turn: int = 0
    last_error: SmqError | None = None
    unusable_file_list: str | None = field(default=None)

    def failure(self, seconds: float) -> Unavailable:
        where = "in its files, nor at a replica" if self.replicas else "in its files"
        cause = f": {self.last_error.message}" if self.last_error is not None else ""
        return Unavailable(
            f"for {seconds:.0f} s, message {self.position} of {self.segment.name} was not {where}{cause}. "
            "Run the read again"
        )


def _part(at: _Progress, table: pa.Table) -> Found:
    if table.num_rows:
        first = at.position
        at.position += table.num_rows
        yield first, table


def _columns_to_read(columns: Sequence[str] | None) -> list[str] | None:
    """A value that is in an object is named in the headers, and a table without any column has no rows."""
    if columns is None:
        return None
    more = ["headers"] if "value" in columns else []
    return list(dict.fromkeys([*columns, *more])) or ["partition"]
