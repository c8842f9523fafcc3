"""The sender of one segment: when to open a session, what to send there next, and when to open another one.

Small batches go on the small lane, where many share a frame. Large ones, references and large values go on the bulk
lane, where they hold up nothing that is small. A session belongs to one lane, so to change it is to open another
session. The broker says where the log ends, and what it lacks is sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from smq_core.backoff import Backoff
from smq_core.errors import NotHosted, NotOpenYet, QuotaExceeded, SmqError
from smq_core.producing.send_queue import QueuedSubBatch, SendQueue, SendQueueState, SentSubBatch

MIN_BACKOFF_SECONDS = 0.02
MAX_BACKOFF_SECONDS = 0.25
# How long a session stays on the bulk lane after the last large batch. To change back costs a round trip.
SMALL_AFTER_SECONDS = 10.0
# How long a quota of streams may refuse sessions before the producer ends. The client's lanes that are not used any
# more, or whose end the broker has not seen yet, count for some seconds.
QUOTA_TIMEOUT_SECONDS = 30.0


class NoBatch(Enum):
    """Why a session has nothing to send."""

    WAIT = auto()
    """Not yet."""
    END = auto()
    """Nothing more will come in it. What is next may belong on the other lane, in another session."""


class SegmentSender:
    """With ``open_ahead`` it opens a session although there is nothing to send yet, on the bulk lane with ``is_bulk``.

    The broker may host the segment a little later than the layout names it. ``now`` is in seconds.
    """

    def __init__(self, send_queue: SendQueue, *, open_ahead: bool = False, is_bulk: bool = False) -> None:
        self.send_queue = send_queue
        self.session: int | None = None
        """The session until it has ended."""
        self.failure: SmqError | None = None
        """The error that the primary replied with in this session."""
        self.last_failure: SmqError | None = None
        """Why a session ended since the last ack."""
        self.replaced_at: float | None = None
        """When the segment was first known to be replaced. From then on its outcome is needed."""
        self.acked_at = float("-inf")
        self.retry_at = float("-inf")
        """No session is opened before."""
        self.is_bulk = is_bulk
        """Whether the last session was, or the next one will be, on the bulk lane."""
        self._refused_since: float | None = None
        """Since when a quota of streams has refused every session."""
        self._large_at = 0.0
        """When something large was next to be sent for the last time."""
        self._may_send = False
        self.is_held_back = False
        """Whether something waits for the queues of ancestors, as of the last look for a batch."""
        self._open_ahead = open_ahead
        self._backoff = Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)

    @property
    def needs_session(self) -> bool:
        if self.session is not None or self.replaced_at is not None or self.send_queue.state is SendQueueState.DONE:
            return False
        return self._open_ahead or not self.send_queue.idle

    def open(self, session: int, now: float) -> None:
        if not self.send_queue.idle:
            self.is_bulk = self._needs_bulk_lane()
        self.session = session
        self.failure = None
        self._may_send = False
        self._large_at = now

    def _needs_bulk_lane(self) -> bool:
        waiting = self.send_queue
        first = [waiting.queue[0]] if waiting.queue else []
        return any(it.is_large for it in (*first, *(sent.sub_batch for sent in waiting.in_flight)))

    def next_batch(self, may_send: Callable[[SendQueue], bool], now: float) -> SentSubBatch | NoBatch:
        """What to send in the session now. ``may_send`` says whether the queues of all ancestors are done."""
        waiting = self.send_queue
        if waiting.state is SendQueueState.DONE:
            return NoBatch.END
        if not self._may_send:
            self._may_send = not waiting.idle and may_send(waiting)
        self.is_held_back = not self._may_send and not waiting.idle
        if not self._may_send:
            return NoBatch.WAIT
        if waiting.queue and self._belongs_on_other_lane(waiting.queue[0], now):
            return NoBatch.END
        return waiting.next_to_send(lambda it: it.fits(waiting.segment)) or NoBatch.WAIT

    def _belongs_on_other_lane(self, sub_batch: QueuedSubBatch, now: float) -> bool:
        if sub_batch.is_large:
            self._large_at = now
            return not self.is_bulk
        if not self.is_bulk or self.send_queue.in_flight:
            return False
        return now - self._large_at >= SMALL_AFTER_SECONDS

    def opened(self) -> None:
        """Resets the backoff if no session has failed since the last ack: this one may fail in the same way."""
        self._open_ahead = False
        self._refused_since = None
        if self.last_failure is None:
            self._backoff.reset()

    def is_refused_for_good(self, now: float) -> bool:
        """Whether a quota of streams has refused sessions for too long."""
        return self._refused_since is not None and now - self._refused_since >= QUOTA_TIMEOUT_SECONDS

    def acked(self, now: float) -> None:
        """The session works."""
        self.acked_at = now
        self.last_failure = None
        self._backoff.reset()

    def ended(self, failure: SmqError | None, *, is_planned: bool, now: float) -> SmqError | None:
        """The session has ended. Returns the error by which it did, if any."""
        self.session = None
        self.send_queue.stream_closed()
        # What a reply said is why the session ended; its end may be this process's own abort.
        self.last_failure = self.failure or failure or self.last_failure
        failure = failure or self.failure
        if isinstance(failure, QuotaExceeded) and self._refused_since is None:
            self._refused_since = now
        if failure is not None or not is_planned:
            if isinstance(failure, (NotOpenYet, NotHosted)) and not self.send_queue.idle:
                self._backoff.reset()
            self.retry_at = now + self._backoff.increase()
        return failure
