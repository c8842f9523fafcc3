"""Reads the tail of one segment: by its own stream, or by that of another reader of this client."""

from __future__ import annotations

import logging
import threading
import time
from enum import Enum

from smq.consuming.fetching.fetch_output import FetchOutput
from smq.consuming.fetching.fetch_progress import FetchProgress
from smq.consuming.fetching.file_fetcher import FileFetcher
from smq.consuming.fetching.shared_tails import PublishedTail, SharedTails, TailSubscription
from smq.reading.tail_stream import TailFrame, TailStream
from smq.transport.topic_view import TopicView
from smq_core.errors import QuotaExceeded, SmqError, Unreachable, is_denial
from smq_core.model.entities import Segment
from smq_proto.wire import loss_from_pb

log = logging.getLogger(__name__)

MAX_LATE_SECONDS = 0.5
# How often a program is warned that a quota of streams refuses a tail. Meanwhile messages come from the filer, later.
QUOTA_WARNING_SECONDS = 60.0


class _TailEnd(Enum):
    """Why reading the tail has ended."""

    SEALED = "the end of the segment was reported"
    BROKEN = "the stream broke, chunks come next, or the reader was stopped"
    ELSEWHERE = "it goes on with another stream"


class TailFetcher:
    """``read`` is called by the reader's thread, ``abort`` and ``check_liveness`` by others.

    ``ordinal`` spreads readers over the replicas. ``files`` reads the uploads that entries of the tail refer to.
    Reading ends early when ``stop`` is set.
    """

    def __init__(
        self,
        *,
        view: TopicView,
        segment: str,
        ordinal: int,
        shared_tails: SharedTails,
        output: FetchOutput,
        progress: FetchProgress,
        files: FileFetcher,
        stop: threading.Event,
    ) -> None:
        self._view = view
        self._segment = segment
        self._ordinal = ordinal
        self._shared_tails = shared_tails
        self._tail_key = view.snapshot.topic.uid, segment
        self._output = output
        self._progress = progress
        self._files = files
        self._stop = stop
        self._stream: TailStream | None = None
        self._published: PublishedTail | None = None
        """The other readers of this client that read by this one's stream."""
        self._subscription: TailSubscription | None = None
        """This reader's part in another one's stream. Then that one's thread changes what this one reads."""
        self._shared_end = _TailEnd.ELSEWHERE
        self._warned_at = float("-inf")

    def read(self, segment: Segment) -> bool:
        """Reads until the tail breaks off. True: the segment's end was reported. Raises what :func:`is_denial` finds.

        It comes from another reader of this client, if one publishes it and is not behind. The first frame does not,
        because a replica may have reported a newer watermark than the other reader knows.
        """
        end = _TailEnd.ELSEWHERE
        try:
            while end is _TailEnd.ELSEWHERE and not self._stop.is_set():
                if self._published is None and self._output.watermark_known and self._subscribe():
                    end = self._wait_for_subscription()
                else:
                    end = self._read_stream(segment)
        finally:
            self.end_publication()
            self._end_subscription()
        return end is _TailEnd.SEALED

    def abort(self) -> None:
        """Ends reading at once. ``stop`` is set."""
        stream, subscription = self._stream, self._subscription
        if stream is not None:
            stream.abort()
        if subscription is not None:
            subscription.close()

    def touch_stream(self) -> None:
        """The filer was read meanwhile, so a missing frame is not the replica's fault."""
        if self._stream is not None:
            self._stream.touch()

    def check_liveness(self, now: float, late_by: float) -> None:
        """Aborts the stream of an unresponsive replica. ``late_by``: how many seconds too late this is called."""
        stream = self._stream
        if stream is not None and late_by > MAX_LATE_SECONDS:
            stream.touch()  # this process got no CPU, so a missing frame may wait here
        elif stream is not None and stream.is_unresponsive(now):
            log.info("the tail of %s is unresponsive; reading continues at another replica", self._segment)
            stream.abort()

    def _read_stream(self, segment: Segment) -> _TailEnd:
        replica = segment.replicas[self._ordinal % len(segment.replicas)]
        self._ordinal += 1  # another replica next time
        readers = 1 if self._published is None else self._published.readers
        uid, channels = self._view.snapshot.topic.uid, self._view.reader_channels
        stream = self._stream = TailStream(
            segment=self._segment, uid=uid, replica=replica, channels=channels, readers=readers
        )
        if self._stop.is_set():
            return _TailEnd.BROKEN
        try:
            for frame in stream.frames(self._output.position):
                self._publish(frame)
                end = self._take(frame) or self._elsewhere(readers)
                if end is not None:
                    if end is not _TailEnd.SEALED:
                        self._ordinal -= 1  # this replica is fine
                    return end
        except SmqError as error:
            if self._stop.is_set():
                return _TailEnd.BROKEN
            if is_denial(error):
                raise
            level = logging.INFO
            if isinstance(error, QuotaExceeded) and time.monotonic() >= self._warned_at + QUOTA_WARNING_SECONDS:
                self._warned_at, level = time.monotonic(), logging.WARNING
            log.log(level, "reading the tail of %s at %s failed: %s", self._segment, replica.broker, error.message)
            if isinstance(error, Unreachable):
                threading.Thread(
                    target=self._view.report_unreachable_broker,
                    args=(replica.incarnation, error.message),
                    name=f"smq-unreachable-{replica.broker}",
                    daemon=True,
                ).start()
        finally:
            self._stream = None
        return _TailEnd.BROKEN

    def _take(self, frame: TailFrame) -> _TailEnd | None:
        """Puts what the frame has into the buffer. Returns why nothing follows, if so."""
        output = self._output
        output.watermark = max(output.watermark, frame.watermark)
        output.watermark_known = True
        if frame.trimmed_to is not None:
            return _TailEnd.BROKEN
        self._progress.tail_answered()
        if frame.table is not None:
            output.at_boundary = False
            if not output.put(frame.table, frame.first, frame.nbytes, frame.large_values):
                return _TailEnd.BROKEN
        if frame.referenced is not None and not self._files.read_referenced(frame.referenced):
            return _TailEnd.BROKEN
        if frame.sealed is not None:
            output.put_end(frame.sealed.end, loss_from_pb(frame.sealed.lost) if frame.sealed.HasField("lost") else None)
            return _TailEnd.SEALED
        return None

    # ---- sharing the stream with other readers of this client

    def _publish(self, frame: TailFrame) -> None:
        """Passes a frame on to other readers, unless this one may be late with the next: it reads an upload first."""
        if frame.referenced is not None or frame.trimmed_to is not None:
            self.end_publication()
            return
        if self._published is None:
            self._published = self._shared_tails.publish(self._tail_key, self._output.position)
        if self._published is not None:
            self._published.put(frame)

    def end_publication(self) -> None:
        """Lets those who read by this reader's stream go on by themselves. Repeatable."""
        published, self._published = self._published, None
        if published is not None:
            published.end()

    def _elsewhere(self, readers: int) -> _TailEnd | None:
        """Whether to leave a stream that serves ``readers``: for another reader's, or for one for more or fewer."""
        if self._published is not None:
            fits = readers / 2 < self._published.readers < readers * 2
            return None if fits else _TailEnd.ELSEWHERE
        return _TailEnd.ELSEWHERE if self._subscribe() else None

    def _subscribe(self) -> bool:
        """Lets another reader's thread put frames into the buffer from now on, if it can. Repeatable."""
        if self._subscription is None:
            self._shared_end, self._output.may_wait = _TailEnd.ELSEWHERE, False
            self._subscription = self._shared_tails.subscribe(self._tail_key, self._output.position, self._receive)
            self._output.may_wait = self._subscription is None
        return self._subscription is not None

    def _receive(self, frame: TailFrame) -> bool:
        """Takes a frame in the publisher's thread, which must not wait. False: this reader goes on by itself."""
        if frame.first > self._output.position:
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
            self._subscription, self._output.may_wait = None, True
