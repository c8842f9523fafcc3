"""The sender thread of one segment: opens the stream, sends the queue, and opens the stream again if it breaks."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import Protocol

import pyarrow as pa

from smq.producing.partitioning import SubBatch
from smq.producing.segment_stream import SegmentStream
from smq.producing.sub_batch_versions import fits
from smq.producing.uploads.uploaded_rows import UploadedRows
from smq.transport.backoff import Backoff
from smq_core.errors import InvalidRequest, NotHosted, NotOpenYet, ProducerFenced, SmqError, Unavailable
from smq_core.model.entities import Replica, Segment
from smq_core.producing.send_queue import SendQueue, SendQueueState

log = logging.getLogger(__name__)

MIN_BACKOFF_SECONDS = 0.02
MAX_BACKOFF_SECONDS = 0.25


class SenderPort(Protocol):
    """What a segment sender needs from its producer. ``lock`` guards the send queue and the sender's fields."""

    @property
    def lock(self) -> threading.Lock: ...

    @property
    def stopping(self) -> bool: ...

    def open_stream(self, segment: Segment) -> SegmentStream: ...

    def may_send(self, send_queue: SendQueue) -> bool: ...

    def fail(self, error: SmqError) -> None: ...

    def report_unreachable(self, replica: Replica, failure: SmqError | None) -> None: ...


class SegmentSender:
    """Sends the queue of one segment. The producer's lock guards its fields; ``wake`` is a condition on that lock.

    With ``open_ahead`` the sender opens its stream once although there is nothing to send yet.
    """

    def __init__(self, producer: SenderPort, send_queue: SendQueue, *, open_ahead: bool = False) -> None:
        self._producer = producer
        self.send_queue = send_queue
        self.wake = threading.Condition(producer.lock)
        self.stream: SegmentStream | None = None
        self.failure: SmqError | None = None
        self.last_failure: SmqError | None = None
        """Why a stream ended since the last ack."""
        self.replaced_at: float | None = None
        """When the segment was first known to be replaced. From then on its outcome is needed."""
        self.acked_at = float("-inf")
        self._open_ahead = open_ahead
        self._backoff = Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        self._thread = threading.Thread(
            target=self._run, name=f"smq-segment-sender-{send_queue.segment.name}", daemon=True
        )
        self._thread.start()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._producer.lock:
                if not self._wait_for_work():
                    return
                stream = self.stream = self._producer.open_stream(self.send_queue.segment)
                self.failure = None
            failure = self._run_stream(stream)
            with self._producer.lock:
                if self.stream is stream:
                    self.stream = None
                    self.send_queue.stream_closed()
                # What a reply said is why the stream ended; its end may be this process's own abort.
                self.last_failure = self.failure or failure or self.last_failure
                failure = failure or self.failure
            self._schedule_retry(failure)

    def _wait_for_work(self) -> bool:
        """Waits, holding the lock, until a stream should be opened. False: the queue is done or the producer closes."""
        retry_at = time.monotonic() + self._backoff.seconds
        while True:
            if self._producer.stopping or self.send_queue.state is SendQueueState.DONE:
                return False
            left = retry_at - time.monotonic()
            has_work = self.replaced_at is None and (self._open_ahead or not self.send_queue.idle)
            if has_work and left <= 0:
                self._open_ahead = False
                return True
            self.wake.wait(left if has_work and left > 0 else None)

    def _run_stream(self, stream: SegmentStream) -> SmqError | None:
        """Opens the stream and sends until it ends."""
        try:
            stream.open()
        except SmqError as error:
            return stream.end(graceful=False) or error
        graceful = self._send(stream)
        return stream.end(graceful)

    def _send(self, stream: SegmentStream) -> bool:
        may_send_now = False
        while True:
            with self._producer.lock:
                while True:
                    if self.stream is not stream:
                        return False
                    if self._producer.stopping or self.send_queue.state is SendQueueState.DONE:
                        return True
                    may_send_now = may_send_now or (
                        not self.send_queue.idle and self._producer.may_send(self.send_queue)
                    )
                    fits_now = partial(self._fits_stream, stream)
                    sent = self.send_queue.next_to_send(fits_now) if may_send_now else None
                    if sent is not None:
                        break
                    if may_send_now and self._needs_newer_broker(stream):
                        self.failure = _old_broker(stream.segment)
                        return False
                    self.wake.wait()
                sub_batch = sent.sub_batch
                assert isinstance(sub_batch, SubBatch)
                if not _takes(stream, sub_batch):
                    self.failure = _old_broker(stream.segment)  # it was sent to another broker before
                    return False
            try:
                large = sub_batch.large_value
                if isinstance(sub_batch.batch, UploadedRows):
                    stream.write_reference(sent.sequence, sub_batch.batch.reference(), sent.rejections)
                else:
                    names = () if large is None else (large.value.name,)
                    stream.write(sent.sequence, sub_batch.batch, sent.rejections, names)
            except (pa.ArrowException, OSError) as error:
                log.debug("write to %s failed: %s", stream.segment.name, error)
                return False

    def _needs_newer_broker(self, stream: SegmentStream) -> bool:
        """Whether only the broker's release keeps the queue from being sent. Everything before it was acked.

        What was not sent stays in the queue, so it can time out without blocking what is behind it.
        """
        waiting = self.send_queue
        if waiting.state is not SendQueueState.STREAMING or waiting.in_flight or not waiting.queue:
            return False
        return self._fits(waiting.queue[0]) and not self._fits_stream(stream, waiting.queue[0])

    def _fits_stream(self, stream: SegmentStream, sub_batch: object) -> bool:
        assert isinstance(sub_batch, SubBatch)
        return _takes(stream, sub_batch) and self._fits(sub_batch)

    def _fits(self, sub_batch: object) -> bool:
        assert isinstance(sub_batch, SubBatch)
        is_uploaded = sub_batch.large_value is None or sub_batch.large_value.uploaded
        return is_uploaded and fits(sub_batch, self.send_queue.segment)

    def _schedule_retry(self, failure: SmqError | None) -> None:
        """Decides after the end of a stream whether and when to open another one."""
        if isinstance(failure, (ProducerFenced, InvalidRequest)):
            self._producer.fail(failure)
            return
        if self._producer.stopping or self.send_queue.state is SendQueueState.DONE:
            return
        if failure is not None:
            log.info("the stream to %s ended: %s", self.send_queue.segment.name, failure.message)
        if isinstance(failure, (NotOpenYet, NotHosted)):
            self._backoff.reset()
            self._backoff.increase()
        else:
            self._backoff.increase()
            self._producer.report_unreachable(self.send_queue.segment.primary, failure)

    def opened(self) -> None:
        """Resets the backoff if no stream has failed since the last ack: this one may fail in the same way."""
        if self.last_failure is None:
            self._backoff.reset()

    def acked(self, now: float) -> None:
        """The stream works. ``now`` is in monotonic seconds."""
        self.acked_at = now
        self.last_failure = None
        self._backoff.reset()


def _takes(stream: SegmentStream, sub_batch: SubBatch) -> bool:
    """Whether the primary knows what this is. It has said so in its first reply."""
    is_new = sub_batch.large_value is not None or isinstance(sub_batch.batch, UploadedRows)
    return stream.takes_references or not is_new


def _old_broker(segment: Segment) -> Unavailable:
    return Unavailable(
        f"the broker of {segment.name} runs a version that knows neither references nor large values: upgrade it"
    )
