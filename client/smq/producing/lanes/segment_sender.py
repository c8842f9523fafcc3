"""The sender of one segment: when to open a session, what to send there next, and when to open another one.

It has no thread: the lane of its session runs it. Small batches go on the small lane, where many share a frame. Large
ones, references and large values go on the bulk lane, where they hold up nothing that is small. A session belongs to
one lane, so to change it is to open another session. The broker says where the log ends, and what it lacks is sent
again.
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
# A larger sub-batch goes on the bulk lane.
BULK_BYTES = 64 << 10
# How long a session stays on the bulk lane after the last large batch. To change back costs a round trip.
SMALL_AFTER_SECONDS = 10.0


class NoBatch(Enum):
    """Why a session has nothing to send."""

    WAIT = auto()
    """Not yet."""
    END = auto()
    """Nothing more will come in it. What is next may belong on the other lane, in another session."""


class Session(Protocol):
    """A session for one segment. It sends what ``SegmentSender.next_batch`` gives, and calls ``ended`` at its end."""

    @property
    def segment(self) -> Segment: ...

    def notify(self) -> None:
        """There may be something to send now. The caller holds the producer's lock."""

    def abort(self) -> None:
        """Ends the session, because its producer has failed."""


class SenderPort(Protocol):
    """What a segment sender needs from its producer. ``lock`` guards the send queue and the sender's fields."""

    @property
    def lock(self) -> threading.Lock: ...

    @property
    def stopping(self) -> bool: ...

    def open_session(self, sender: SegmentSender) -> Session: ...

    def may_send(self, send_queue: SendQueue) -> bool: ...

    def fail(self, error: SmqError) -> None: ...

    def report_unreachable(self, replica: Replica, failure: SmqError | None) -> None: ...

    def call_later(self, seconds: float, call: Callable[[], None]) -> None: ...


class SegmentSender:
    """Sends the queue of one segment. The producer's lock guards its fields, and whoever makes a sender holds it.

    With ``open_ahead`` the sender opens a session although there is nothing to send yet, on the bulk lane with
    ``is_bulk``. The broker may host the segment a little later than the layout names it.
    """

    def __init__(
        self, producer: SenderPort, send_queue: SendQueue, *, open_ahead: bool = False, is_bulk: bool = False
    ) -> None:
        self._producer = producer
        self.send_queue = send_queue
        self.session: Session | None = None
        """None also while the present one comes to its end."""
        self.failure: SmqError | None = None
        self.last_failure: SmqError | None = None
        """Why a session ended since the last ack."""
        self.replaced_at: float | None = None
        """When the segment was first known to be replaced. From then on its outcome is needed."""
        self.acked_at = float("-inf")
        self.is_bulk = is_bulk
        """Whether the last session was, or the next one will be, on the bulk lane."""
        self._large_at = 0.0
        """When something large was next to be sent for the last time, in monotonic seconds."""
        self._unended: Session | None = None
        """The session until it has ended."""
        self._may_send = False
        self._open_ahead = open_ahead
        self._backoff = Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        self._retry_at = 0.0
        self._retry_planned = False
        self.notify()

    @requires_lock("_producer.lock")
    def notify(self) -> None:
        """Something has changed that may allow to send, or to open a session."""
        if self._unended is not None:
            self._unended.notify()
            return
        if not self._has_work():
            return
        left = self._retry_at - time.monotonic()
        if left <= 0:
            self._open()
        elif not self._retry_planned:
            self._retry_planned = True
            self._producer.call_later(left, self._retry)

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
        if not self.send_queue.idle:
            self.is_bulk = self._needs_bulk_lane()
        self._may_send = False
        self.failure = None
        self._large_at = time.monotonic()
        self.session = self._unended = self._producer.open_session(self)

    def _needs_bulk_lane(self) -> bool:
        waiting = self.send_queue
        if waiting.queue and is_large(waiting.queue[0]):
            return True
        return any(is_large(sent.sub_batch) for sent in waiting.in_flight)

    # ---- for the session

    @requires_lock("_producer.lock")
    def next_batch(self, session: Session) -> SentSubBatch | NoBatch:
        """What to send in this session now."""
        if self.session is not session:
            return NoBatch.END
        if self._producer.stopping or self.send_queue.state is SendQueueState.DONE:
            return NoBatch.END
        waiting = self.send_queue
        if not self._may_send:
            self._may_send = not waiting.idle and self._producer.may_send(waiting)
        if not self._may_send:
            return NoBatch.WAIT
        if waiting.queue and self._belongs_on_other_lane(waiting.queue[0]):
            return NoBatch.END
        return waiting.next_to_send(self._fits) or NoBatch.WAIT

    @requires_lock("_producer.lock")
    def _belongs_on_other_lane(self, sub_batch: object) -> bool:
        if is_large(sub_batch):
            self._large_at = time.monotonic()
            return not self.is_bulk
        if not self.is_bulk or self.send_queue.in_flight:
            return False
        return time.monotonic() - self._large_at >= SMALL_AFTER_SECONDS

    def ended(self, session: Session, failure: SmqError | None, *, as_planned: bool = False) -> None:
        """The session has ended, by a ``failure`` or not. ``as_planned``: another one may be opened at once."""
        with self._producer.lock:
            if self.session is session:
                self.session = None
                self.send_queue.stream_closed()
            # What a reply said is why the session ended; its end may be this process's own abort.
            self.last_failure = self.failure or failure or self.last_failure
            failure = failure or self.failure
            if failure is not None or not as_planned:
                self._retry_at = time.monotonic() + self._next_backoff(failure)
        try:
            if failure is not None or not as_planned:
                self._handle_failure(failure)
        finally:
            with self._producer.lock:
                self._unended = None
                self.notify()

    def _next_backoff(self, failure: SmqError | None) -> float:
        if isinstance(failure, (NotOpenYet, NotHosted)) and not self.send_queue.idle:
            self._backoff.reset()
        return self._backoff.increase()

    def _handle_failure(self, failure: SmqError | None) -> None:
        if isinstance(failure, (ProducerFenced, InvalidRequest)):
            self._producer.fail(failure)
            return
        if self._producer.stopping or self.send_queue.state is SendQueueState.DONE:
            return
        if failure is not None:
            log.info("the session for %s ended: %s", self.send_queue.segment.name, failure.message)
        if not isinstance(failure, (NotOpenYet, NotHosted, Overloaded)):
            self._producer.report_unreachable(self.send_queue.segment.primary, failure)

    def _fits(self, sub_batch: object) -> bool:
        assert isinstance(sub_batch, SubBatch)
        is_uploaded = sub_batch.large_value is None or sub_batch.large_value.uploaded
        return is_uploaded and fits(sub_batch, self.send_queue.segment)

    @requires_lock("_producer.lock")
    def opened(self) -> None:
        """Resets the backoff if no session has failed since the last ack: this one may fail in the same way."""
        self._open_ahead = False
        if self.last_failure is None:
            self._backoff.reset()

    @requires_lock("_producer.lock")
    def acked(self, now: float) -> None:
        """The session works. ``now`` is in monotonic seconds."""
        self.acked_at = now
        self.last_failure = None
        self._backoff.reset()


def is_large(sub_batch: object) -> bool:
    """Whether a sub-batch goes on the bulk lane."""
    assert isinstance(sub_batch, SubBatch)
    is_uploaded = sub_batch.large_value is not None or isinstance(sub_batch.batch, UploadedRows)
    return is_uploaded or sub_batch.cost > BULK_BYTES
