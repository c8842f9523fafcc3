"""Reads one segment from a position to its end: files from the filer and the tail from a replica."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from smq.consuming.fetching.large_values import LargeValueReader
from smq.consuming.fetching.prefetch_buffer import FetchedLoss, FetchedRows, FetchFailed, PrefetchBuffer, SegmentEnd
from smq.consuming.fetching.shared_tails import PublishedTail, SharedTails, TailSubscription
from smq.consuming.reader_losses import loss_for_reader
from smq.reading.tail_stream import TailFrame, TailStream
from smq.transport.backoff import Backoff
from smq.transport.topic_view import TopicView
from smq_core.errors import CorruptChunk, CorruptDocument, DataLost, SmqError, StoreUnavailable, Unreachable
from smq_core.manifests.segment_manifest import ManifestFile, SegmentManifest
from smq_core.model.entities import SealedSegment, Segment
from smq_core.model.lost_range import LostRange
from smq_core.reading.segment_dag import is_removed
from smq_proto.wire import lost_from_pb
from smq_storage.catalog import paths, sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import TIMESTAMP
from smq_storage.tables.file_statistics import compacted_file
from smq_storage.tables.range_reader import read_file
from smq_storage.tables.segment_files import StoredSegment, load_manifest
from smq_storage.uploads.large_values import LargeValue, find_large_values
from smq_storage.uploads.uploaded_files import ReferencedRows, read_referenced_rows

log = logging.getLogger(__name__)

MIN_BACKOFF_SECONDS = 0.02
MAX_BACKOFF_SECONDS = 0.5
MAX_LATE_SECONDS = 0.5
WARN_AFTER_SECONDS = 5.0
"""After each such period without progress, a warning with the cause is logged. That of the filer is FilerHealth's."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What to read. Messages appended before ``since`` (microseconds) are left out."""

    segment: str
    position: int
    sealed: SealedSegment | None = None
    since: int = 0


class _TailEnd(Enum):
    """Why reading the tail has ended."""

    SEALED = "the end of the segment was reported"
    BROKEN = "the stream broke, chunks come next, or the reader was stopped"
    ELSEWHERE = "it goes on with another stream"


class Fetcher:
    """A thread that reads one segment ahead into the prefetch buffer. ``ordinal`` spreads readers over replicas.

    With ``large_values`` it also fetches the values that are in objects. ``shared_tails``: those of its client.
    """

    def __init__(
        self,
        view: TopicView,
        buffer: PrefetchBuffer[Fetcher],
        fetch_plan: FetchPlan,
        max_bytes: int,
        ordinal: int,
        large_values: LargeValueReader | None = None,
        shared_tails: SharedTails | None = None,
    ) -> None:
        self.segment = fetch_plan.segment
        self.position = fetch_plan.position
        self.watermark = fetch_plan.sealed.end if fetch_plan.sealed is not None else fetch_plan.position
        self.watermark_known = False
        """Whether a replica (or the chunk chain, if there is no replica) has reported the watermark."""
        self.filer_error: StoreUnavailable | None = None
        """Why the last read from the filer failed; None if it did not."""
        self._view = view
        self._shared_tails = shared_tails or SharedTails()
        self._tail_key = view.snapshot.topic.uid, fetch_plan.segment
        self._buffer = buffer
        self._sealed = fetch_plan.sealed
        self._since = fetch_plan.since
        self._max_bytes = max_bytes
        self._ordinal = ordinal
        self._large_values = large_values
        self._chain: ChunkChain | None = None
        self._manifest: SegmentManifest | None = None
        self._unusable_manifest = ""
        self._at_boundary = fetch_plan.position == 0
        self._stream: TailStream | None = None
        self._published: PublishedTail | None = None
        """The other readers of this client that read by this one's stream."""
        self._subscription: TailSubscription | None = None
        """This reader's part in another one's stream. Then that one's thread changes what this one reads."""
        self._shared_end = _TailEnd.ELSEWHERE
        self._may_wait = True
        self._stop = threading.Event()
        self._last_progress_at = time.monotonic()
        buffer.open(self)
        self._thread = threading.Thread(target=self._run, name=f"smq-fetch-{self.segment}", daemon=True)
        self._thread.start()

    def may_end(self) -> bool:
        """Whether the segment is sealed or being sealed, so that it may end and its successors may follow."""
        layout_segment = self._layout_segment()
        return self._sealed is not None or layout_segment is None or bool(layout_segment.successors)

    def stop(self) -> None:
        """Ends reading; nothing more enters the prefetch buffer."""
        self._stop.set()
        self._buffer.drop(self)
        stream, subscription = self._stream, self._subscription
        if stream is not None:
            stream.abort()
        if subscription is not None:
            subscription.close()

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def check_liveness(self, now: float, late_by: float = 0.0) -> None:
        """Aborts the stream of an unresponsive replica. ``late_by``: how many seconds too late this is called."""
        stream = self._stream
        if stream is not None and late_by > MAX_LATE_SECONDS:
            stream.touch()  # this process got no CPU, so a missing frame may wait here
        elif stream is not None and stream.is_unresponsive(now):
            log.info("the tail of %s is unresponsive; reading continues at another replica", self.segment)
            stream.abort()

    # ---- the thread

    def _run(self) -> None:
        backoff = Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        try:
            while not self._stop.is_set():
                before = self.position
                try:
                    if self._read_once():
                        return
                except SmqError as error:
                    self._log_failure(error)
                    if isinstance(error, CorruptChunk):
                        self._buffer.put(self, FetchFailed(error))
                        return
                if self.position > before:
                    backoff.reset()
                self._stop.wait(backoff.increase())
        except Exception as error:
            log.exception("reading %s failed", self.segment)
            self._buffer.put(self, FetchFailed(SmqError(f"reading {self.segment} failed: {error}")))

    def _log_failure(self, error: SmqError) -> None:
        if isinstance(error, StoreUnavailable):
            self.filer_error = error
            self._view.filer_health.failed(error, self._last_progress_at)
        elif time.monotonic() - self._last_progress_at < WARN_AFTER_SECONDS:
            log.info("reading %s: %s", self.segment, error.message)
        else:
            log.warning("reading %s makes no progress and is retried: %s", self.segment, error.message)
            self._last_progress_at = time.monotonic()

    def _read_once(self) -> bool:
        """Reads the tail while the segment is in the layout, then the chunks that exist. True: all is read."""
        layout_segment = self._layout_segment()
        if self._sealed is None and layout_segment is not None and self._read_tail(layout_segment):
            return True
        manifest = self._load_manifest()
        return self._read_chunks() if manifest is None else self._read_files(manifest)

    def _layout_segment(self) -> Segment | None:
        return next((s for s in self._view.snapshot.layout.segments if s.name == self.segment), None)

    def _read_tail(self, segment: Segment) -> bool:
        """Reads until the tail breaks off. True: the segment's end was reported.

        It comes from another reader of this client, if one publishes it and is not behind. The first frame does not,
        because a replica may have reported a newer watermark than the other reader knows.
        """
        end = _TailEnd.ELSEWHERE
        try:
            while end is _TailEnd.ELSEWHERE and not self._stop.is_set():
                if self._published is None and self.watermark_known and self._subscribe():
                    end = self._wait_for_subscription()
                else:
                    end = self._read_stream(segment)
        finally:
            self._end_publication()
            self._end_subscription()
        return end is _TailEnd.SEALED

    def _read_stream(self, segment: Segment) -> _TailEnd:
        replica = segment.replicas[self._ordinal % len(segment.replicas)]
        self._ordinal += 1  # another replica next time
        readers = 1 if self._published is None else self._published.readers
        uid, channels = self._view.snapshot.topic.uid, self._view.reader_channels
        stream = self._stream = TailStream(self.segment, uid, replica, channels, readers)
        if self._stop.is_set():
            return _TailEnd.BROKEN
        try:
            for frame in stream.frames(self.position):
                self._publish(frame)
                end = self._take(frame) or self._elsewhere(readers)
                if end is not None:
                    if end is not _TailEnd.SEALED:
                        self._ordinal -= 1  # this replica is fine
                    return end
        except SmqError as error:
            if self._stop.is_set():
                return _TailEnd.BROKEN
            log.info("reading the tail of %s at %s failed: %s", self.segment, replica.broker, error.message)
            if isinstance(error, Unreachable):
                threading.Thread(
                    target=self._view.report_unreachable_broker, args=(replica.incarnation, error.message), daemon=True
                ).start()
        finally:
            self._stream = None
        return _TailEnd.BROKEN

    def _take(self, frame: TailFrame) -> _TailEnd | None:
        """Puts what the frame has into the buffer. Returns why nothing follows, if so."""
        self.watermark = max(self.watermark, frame.watermark)
        self.watermark_known = True
        if frame.trimmed_to is not None:
            return _TailEnd.BROKEN
        self._last_progress_at = time.monotonic()
        self.filer_error = None
        if frame.table is not None:
            self._at_boundary = False
            if not self._put(frame.table, frame.first, frame.nbytes):
                return _TailEnd.BROKEN
        if frame.referenced is not None and not self._put_referenced(frame.referenced):
            return _TailEnd.BROKEN
        if frame.sealed is not None:
            self._report_end(frame.sealed.end, lost_from_pb(frame.sealed))
            return _TailEnd.SEALED
        return None

    # ---- sharing the stream with other readers of this client

    def _publish(self, frame: TailFrame) -> None:
        """Passes a frame on to other readers, unless this one may be late with the next: it reads an upload first."""
        if frame.referenced is not None or frame.trimmed_to is not None:
            self._end_publication()
            return
        if self._published is None:
            self._published = self._shared_tails.publish(self._tail_key, self.position)
        if self._published is not None:
            self._published.put(frame)

    def _end_publication(self) -> None:
        published, self._published = self._published, None
        if published is not None:
            published.end()

    def _elsewhere(self, readers: int) -> _TailEnd | None:
        """Whether to leave a stream for so many ``readers``: for another reader's, or for one for more or fewer."""
        if self._published is not None:
            fits = readers / 2 < self._published.readers < readers * 2
            return None if fits else _TailEnd.ELSEWHERE
        return _TailEnd.ELSEWHERE if self._subscribe() else None

    def _subscribe(self) -> bool:
        """Lets another reader's thread put frames into the buffer from now on, if it can. Repeatable."""
        if self._subscription is None:
            self._shared_end, self._may_wait = _TailEnd.ELSEWHERE, False
            self._subscription = self._shared_tails.subscribe(self._tail_key, self.position, self._receive)
            self._may_wait = self._subscription is None
        return self._subscription is not None

    def _receive(self, frame: TailFrame) -> bool:
        """Takes a frame in the publisher's thread, which must not wait. False: this reader goes on by itself."""
        if frame.first > self.position:
            return False
        end = self._take(frame)
        if end is _TailEnd.SEALED:
            self._shared_end = end
        return end is None

    def _wait_for_subscription(self) -> _TailEnd:
        """Returns when this reader goes on by itself, or has got the segment's end."""
        if self._subscription is not None and not self._stop.is_set():
            self._subscription.wait()
        self._end_subscription()
        return self._shared_end

    def _end_subscription(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription.wait()  # for the frame that is being received
            self._subscription, self._may_wait = None, True

    def _load_manifest(self) -> SegmentManifest | None:
        """The manifest of a sealed segment. None if it has none that can be read: then the chunk chain is walked."""
        sealed = self._sealed
        if self._manifest is not None or sealed is None or sealed.manifest == self._unusable_manifest:
            return self._manifest
        topic = self._view.snapshot.topic
        try:
            self._manifest = load_manifest(self._view.store(), StoredSegment.of(topic.name, topic.uid, sealed))
        except CorruptDocument as error:
            log.warning("%s is read by its chunk chain, because its manifest is damaged: %s", self.segment, error)
        if self._manifest is None:
            self._unusable_manifest = sealed.manifest
        elif self._since:
            self.position = max(self.position, self._manifest.first_since(self._since))
        return self._manifest

    def _read_files(self, manifest: SegmentManifest) -> bool:
        """Reads a sealed segment's files from the position on. True: that was the segment's end."""
        assert self._sealed is not None
        while (file := manifest.file_at(self.position)) is not None and not self._stop.is_set():
            try:
                for first, table in read_file(self._view.store(), self.segment, file, self.position, file.end):
                    self._on_filer_answer()
                    if not self._put(table, first):
                        return False
            except DataLost as error:
                if not paths.is_upload(file.path) and self._is_replaced():
                    return False
                log.warning("reading %s: %s", self.segment, error.message)
                if not paths.is_upload(file.path):
                    return self._report_removed(self._sealed.end)
                if not self._put_loss(file.end, file.path):
                    return False
        if self._stop.is_set():
            return False
        self._report_end(self._sealed.end, self._sealed.lost)
        return True

    def _is_replaced(self) -> bool:
        """Whether the index names another manifest by now, because of a compaction. Reading goes on with that one."""
        topic, sealed = self._view.snapshot.topic, self._sealed
        entries = sealed_index.read(self._view.store(), topic.name, topic.uid)
        entry = next((it for it in entries if it.name == self.segment), None)
        if entry is None or sealed is None or entry.manifest == sealed.manifest:
            return False
        self._sealed, self._manifest, self._unusable_manifest = entry, None, ""
        return True

    def _read_chunks(self) -> bool:
        """Reads chunks from the position to the end of the chain. True: that was the segment's end."""
        chain = self._chain
        if chain is None:
            snapshot = self._view.snapshot
            chain = self._chain = ChunkChain(self._view.store(), snapshot.topic.name, snapshot.topic.uid, self.segment)
        while not self._stop.is_set():
            if self._sealed is not None and self.position >= self._sealed.end:
                self._report_end(self._sealed.end, self._sealed.lost)
                return True
            first: int | None = self.position if self._at_boundary else chain.find(self.position)
            found = chain.read(first) if first is not None else None
            if found is None and self._at_boundary and (self._sealed is not None or self._layout_segment() is None):
                # If the chunk that began here was merged, an earlier one says where its rows are.
                first = chain.find(self.position)
                found = chain.read(first) if first is not None else None
            self._on_filer_answer()
            if found is None:
                return self._at_end_of_chain(chain)
            info, table = found
            if info.sealed:
                self._report_end(info.first, info.lost)
                return True
            self.watermark = max(self.watermark, info.end)
            referenced = ReferencedRows.of_chunk(self._view.snapshot.topic.uid, info)
            if referenced is not None:
                if not self._put_referenced(referenced):
                    return False
                continue
            compacted = compacted_file(chain.path(info.first), info)
            if compacted is not None:
                if not self._put_compacted(chain, compacted):
                    return False
                continue
            self._at_boundary = False  # an error may leave the position within the chunk
            if not self._put(table, info.first):
                return False
            self._at_boundary = True
        return False

    def _at_end_of_chain(self, chain: ChunkChain) -> bool:
        """Handles a position that no chunk has, because it is not written yet or was removed. True: all is read."""
        if self._sealed is not None:
            # The index has the segment's end, so the chunk existed, and was merged meanwhile or removed by retention.
            return not self._is_replaced() and self._report_removed(self._sealed.end)
        self.watermark_known = True
        if not self._at_boundary or self._layout_segment() is None:
            seal = chain.read_seal_chunk()
            if seal is not None and seal.first <= self.position:
                self._report_end(seal.first, seal.lost)
                return True
            if seal is None and self._layout_segment() is None:
                return self._check_sealed_history()
        return False

    def _check_sealed_history(self) -> bool:
        """Handles a segment without a layout entry or a seal, which retention may have removed. True: all is read."""
        sealed_history = self._view.sealed_history()
        self._sealed = sealed_history.sealed.get(self.segment)
        if self._sealed is None and is_removed(self.segment, sealed_history.removed or ()):
            return self._report_removed(sealed_history.ends.get(self.segment))
        return False

    def _report_removed(self, end: int | None) -> bool:
        if end is None or end > self.position:
            self._buffer.put(self, FetchedLoss(self.position, end))
        self._buffer.put(self, SegmentEnd(self.position if end is None else end))
        return True

    def _put_referenced(self, referenced: ReferencedRows) -> bool:
        """Reads rows of an upload from the position on, or reports that it is gone. False: it was stopped."""
        try:
            for first, table in read_referenced_rows(self._view.store(), referenced, self.position):
                self._at_boundary = False
                if not self._put(table, first):
                    return False
                self._on_filer_answer()
                if self._stream is not None:
                    self._stream.touch()
        except DataLost as error:
            log.warning("reading %s: %s", self.segment, error.message)
            if not self._put_loss(referenced.end, referenced.path):
                return False
        self._at_boundary = True  # an entry with a reference is a chunk of its own
        return True

    def _put_compacted(self, chain: ChunkChain, file: ManifestFile) -> bool:
        """Reads the merged rows of a compacted chunk from the position on. False: it was stopped, or read again."""
        self._at_boundary = False
        try:
            for first, table in read_file(self._view.store(), self.segment, file, self.position, file.end):
                self._on_filer_answer()
                if not self._put(table, first):
                    return False
        except DataLost as error:
            info = chain.info(file.first)
            if info is None or compacted_file(chain.path(file.first), info) != file:
                return False  # it was merged again
            log.warning("reading %s: %s", self.segment, error.message)
            if not self._put_loss(file.end, file.path):
                return False
        self._at_boundary = True
        return True

    def _on_filer_answer(self) -> None:
        self._last_progress_at = time.monotonic()
        self.filer_error = None
        self._view.filer_health.answered()

    def _put_loss(self, end: int, file: str) -> bool:
        """Reports that an upload is gone or altered, and goes on after it. False: it was stopped."""
        if not self._buffer.put(self, FetchedLoss(self.position, end, file=file)):
            return False
        self.position = end
        return True

    def _put(self, table: pa.Table, first: int, nbytes: int | None = None) -> bool:
        """Puts the rows from the position on into the buffer, in parts of limited size. False: it was stopped.

        ``nbytes`` is the size of the table, if it is known. While a subscription runs, False also means that there is
        no capacity, or that a value has to be fetched; the position says how far it came.
        """
        row_bytes = (table.nbytes if nbytes is None else nbytes) / max(1, table.num_rows)
        skip = self.position - first
        if skip > 0:
            table = table.slice(skip)
        if self._since:
            table = self._drop_before_start(table)
        found = find_large_values(table) if self._large_values is not None else {}
        begin = 0
        for row, large in found.items():
            before = table.slice(begin, row - begin)
            if not self._put_rows(before, row_bytes) or not self._put_large(table.slice(row, 1), large):
                return False
            begin = row + 1
        return self._put_rows(table.slice(begin), row_bytes)

    def _put_large(self, message: pa.Table, large: LargeValue) -> bool:
        """Puts a message with its value into the buffer, or reports that the value is gone. False as in ``_put``."""
        assert self._large_values is not None
        if not self._may_wait:
            return False
        self._end_publication()
        try:
            filled = self._large_values.fill(message, large, self.segment, self.position)
        except DataLost as error:
            log.warning("reading %s: %s", self.segment, error.message)
            return self._put_loss(self.position + 1, error.path)
        finally:
            self._last_progress_at = time.monotonic()
            if self._stream is not None:
                self._stream.touch()
        return self._put_rows(filled, filled.nbytes)

    def _put_rows(self, table: pa.Table, row_bytes: float) -> bool:
        rows = table.num_rows
        per_part = max(1, int(self._max_bytes / max(1.0, row_bytes)))
        for start in range(0, rows, per_part):
            part = table if rows <= per_part else table.slice(start, per_part)
            item = FetchedRows(part, self.position, int(row_bytes * part.num_rows))
            if not self._buffer.try_put(self, item):
                if not self._may_wait:
                    return False
                self._end_publication()
                if not self._buffer.put(self, item):
                    return False
            self.position += part.num_rows
        return True

    def _drop_before_start(self, table: pa.Table) -> pa.Table:
        """Drops the rows that were appended before ``since``. Append times never decrease, so they are a prefix."""
        early = pc.sum(pc.less(table.column("appended"), pa.scalar(self._since, TIMESTAMP))).as_py() or 0
        self.position += early
        if early < table.num_rows:
            self._since = 0
        return table.slice(early)

    def _report_end(self, end: int, lost: LostRange | None) -> None:
        loss = loss_for_reader(self.position, lost)
        if loss is not None:
            self._buffer.put(self, loss)
        self._buffer.put(self, SegmentEnd(end))


def join_all(fetchers: list[Fetcher], seconds: float) -> None:
    """Joins the threads of stopped fetchers."""
    deadline = time.monotonic() + seconds
    for fetcher in fetchers:
        fetcher.join(max(0.0, deadline - time.monotonic()))
