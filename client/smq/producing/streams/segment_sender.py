"""The sender of one segment: when to open a stream, what to send on it next, and when to open another one.

It has no thread. A stream runs it: one that many producers share, or a thread with a stream of this sender alone.
Small batches go on the shared stream, because a stream for each producer and segment costs more than they do. Large
ones, references and large values get a separate stream, where they hold up nobody else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from smq.producing.batching.partitioning import SubBatch
from smq.producing.batching.sub_batch_versions import fits
from smq.producing.uploads.uploaded_rows import UploadedRows
from smq.transport.backoff import Backoff
from smq_core.errors import InvalidRequest, NotHosted, NotOpenYet, Overloaded, ProducerFenced, SmqError
from smq_core.model.entities import Replica, Segment
from smq_core.producing.send_queue import SendQueue, SendQueueState, SentSubBatch
from smq_storage.process.locks import requires_lock

log = logging.getLogger(__name__)

MIN_BACKOFF_SECONDS = 0.02
MAX_BACKOFF_SECONDS = 0.25
# A larger sub-batch gets a separate stream.
MAX_SHARED_BYTES = 64 << 10


class NoBatch(Enum):
    """Why a stream has nothing to send."""

    WAIT = auto()
    """Not yet."""
    END = auto()
    """Nothing more will come on it."""
    REFUSED = auto()
    """Another stream has replaced this one."""
    NEEDS_OWN_STREAM = auto()
    """What is next does not belong on a shared stream."""


class ProducerStream(Protocol):
    """A stream to a segment's primary, as a producer sees it."""

    @property
    def segment(self) -> Segment: ...

    def is_unresponsive(self, now: float) -> bool: ...

    def abort(self) -> None: ...


class StreamRunner(Protocol):
    """Sends what ``SegmentSender.next_batch`` gives on a stream, and calls ``SegmentSender.ended`` after its end."""

    @property
    def stream(self) -> ProducerStream: ...

    def notify(self) -> None:
        """There may be something to send now. The caller holds the producer's lock."""

    def join(self, timeout: float) -> None:
        """Waits for the end of the runner's own thread, if it has one; ``timeout`` in seconds."""


class SenderPort(Protocol):
    """What a segment sender needs from its producer. ``lock`` guards the send queue and the sender's fields."""

    @property
    def lock(self) -> threading.Lock: ...

    @property
    def stopping(self) -> bool: ...

    def run_stream(self, sender: SegmentSender) -> StreamRunner: ...

    @property
    def shares_streams(self) -> bool: ...

    def may_send(self, send_queue: SendQueue) -> bool: ...

    def fail(self, error: SmqError) -> None: ...

    def report_unreachable(self, replica: Replica, failure: SmqError | None) -> None: ...

    def call_later(self, seconds: float, call: Callable[[], None]) -> None: ...


class SegmentSender:
    """Sends the queue of one segment. The producer's lock guards its fields, and whoever makes a sender holds it.

    With ``open_ahead`` the sender opens its stream once although there is nothing to send yet, a separate stream
    with ``own_stream``.
    """

    def __init__(
        self, producer: SenderPort, send_queue: SendQueue, *, open_ahead: bool = False, own_stream: bool = False
    ) -> None:
        self._producer = producer
        self.send_queue = send_queue
        self.stream: ProducerStream | None = None
        """None also while the present one comes to its end."""
        self.failure: SmqError | None = None
        self.last_failure: SmqError | None = None
        """Why a stream ended since the last ack."""
        self.replaced_at: float | None = None
        """When the segment was first known to be replaced. From then on its outcome is needed."""
        self.acked_at = float("-inf")
        self.own_stream = own_stream
        """Whether the last stream was, or the next one will be, this sender's own."""
        self._runner: StreamRunner | None = None
        self._may_send = False
        self._open_ahead = open_ahead
        self._backoff = Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        self._retry_at = 0.0
        self._retry_planned = False
        self.notify()

    @requires_lock("_producer.lock")
    def notify(self) -> None:
        """Something has changed that may allow to send, or to open a stream."""
        if self._runner is not None:
            self._runner.notify()
            return
        if not self._has_work():
            return
        left = self._retry_at - time.monotonic()
        if left <= 0:
            self._open()
        elif not self._retry_planned:
            self._retry_planned = True
            self._producer.call_later(left, self._retry)

    def join(self, timeout: float) -> None:
        """Waits until the thread of the sender's own stream has ended; ``timeout`` in seconds."""
        with self._producer.lock:
            runner = self._runner
        if runner is not None:
            runner.join(timeout)

    def _retry(self) -> None:
        with self._producer.lock:
            self._retry_planned = False
            self.notify()

    @requires_lock("_producer.lock")
    def _has_work(self) -> bool:
        if self._producer.stopping or self.send_queue.state is SendQueueState.DONE:
            return False
        return self.replaced_at is None and (self._open_ahead or not self.send_queue.idle)

    @requires_lock("_producer.lock")
    def _open(self) -> None:
        shared = self._producer.shares_streams
        if not shared or not self.send_queue.idle:
            self.own_stream = not shared or self._needs_own_stream()
        self._open_ahead = False
        self._may_send = False
        self.failure = None
        self._runner = self._producer.run_stream(self)
        self.stream = self._runner.stream

    def _needs_own_stream(self) -> bool:
        waiting = self.send_queue
        if waiting.queue and not _may_share(waiting.queue[0]):
            return True
        return not all(_may_share(sent.sub_batch) for sent in waiting.in_flight)

    # ---- for the stream

    @requires_lock("_producer.lock")
    def next_batch(self, stream: ProducerStream) -> SentSubBatch | NoBatch:
        """What to send on this stream now."""
        if self.stream is not stream:
            return NoBatch.REFUSED
        if self._producer.stopping or self.send_queue.state is SendQueueState.DONE:
            return NoBatch.END
        waiting = self.send_queue
        if not self._may_send:
            self._may_send = not waiting.idle and self._producer.may_send(waiting)
        if not self._may_send:
            return NoBatch.WAIT
        if not self.own_stream and waiting.queue and not _may_share(waiting.queue[0]):
            return NoBatch.NEEDS_OWN_STREAM
        return waiting.next_to_send(self._fits) or NoBatch.WAIT

    def ended(self, runner: StreamRunner, failure: SmqError | None, *, as_planned: bool = False) -> None:
        """The stream has ended, by a ``failure`` or not. ``as_planned``: another one may be opened at once."""
        with self._producer.lock:
            if self.stream is runner.stream:
                self.stream = None
                self.send_queue.stream_closed()
            # What a reply said is why the stream ended; its end may be this process's own abort.
            self.last_failure = self.failure or failure or self.last_failure
            failure = failure or self.failure
            if failure is not None or not as_planned:
                self._retry_at = time.monotonic() + self._next_backoff(failure)
        try:
            if failure is not None or not as_planned:
                self._handle_failure(failure)
        finally:
            with self._producer.lock:
                self._runner = None
                self.notify()

    def _next_backoff(self, failure: SmqError | None) -> float:
        if isinstance(failure, (NotOpenYet, NotHosted)):
            self._backoff.reset()
        return self._backoff.increase()

    def _handle_failure(self, failure: SmqError | None) -> None:
        if isinstance(failure, (ProducerFenced, InvalidRequest)):
            self._producer.fail(failure)
            return
        if self._producer.stopping or self.send_queue.state is SendQueueState.DONE:
            return
        if failure is not None:
            log.info("the stream to %s ended: %s", self.send_queue.segment.name, failure.message)
        if not isinstance(failure, (NotOpenYet, NotHosted, Overloaded)):
            self._producer.report_unreachable(self.send_queue.segment.primary, failure)

    def _fits(self, sub_batch: object) -> bool:
        assert isinstance(sub_batch, SubBatch)
        is_uploaded = sub_batch.large_value is None or sub_batch.large_value.uploaded
        return is_uploaded and fits(sub_batch, self.send_queue.segment)

    @requires_lock("_producer.lock")
    def opened(self) -> None:
        """Resets the backoff if no stream has failed since the last ack: this one may fail in the same way."""
        if self.last_failure is None:
            self._backoff.reset()

    @requires_lock("_producer.lock")
    def acked(self, now: float) -> None:
        """The stream works. ``now`` is in monotonic seconds."""
        self.acked_at = now
        self.last_failure = None
        self._backoff.reset()


def _may_share(sub_batch: object) -> bool:
    assert isinstance(sub_batch, SubBatch)
    return (
        sub_batch.large_value is None
        and not isinstance(sub_batch.batch, UploadedRows)
        and sub_batch.cost <= MAX_SHARED_BYTES
    )
