"""The monitor of a producer: it fails batches that are too old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from smq.producing.batching.partitioning import SubBatch
from smq.producing.callbacks import Callbacks, run_callbacks
from smq.producing.delivery_state import delivery_timeout
from smq.producing.in_flight_budget import InFlightBudget
from smq.producing.lanes.segment_sender import SegmentSender
from smq.producing.runtime.timers import Timers
from smq_core.errors import DeliveryTimeout, SmqError
from smq_core.producing.send_queue import SendQueue
from smq_storage.process.locks import requires_lock

CHECK_INTERVAL_SECONDS = 0.5


class ProducerMonitor:
    """Checks from ``start`` on as long as there is something to check, and until ``closing`` is set.

    ``lock`` guards the send queues, the senders and the budget. A batch times out after ``timeout`` seconds. The
    monitor calls ``on_check`` without the lock after each look at the queues.
    """

    def __init__(
        self,
        timers: Timers,
        *,
        lock: threading.Lock,
        closing: threading.Event,
        send_queues: Mapping[str, SendQueue],
        senders: Mapping[str, SegmentSender],
        budget: InFlightBudget,
        timeout: float,
        on_check: Callable[[], None],
    ) -> None:
        self._timers = timers
        self._lock = lock
        self._closing = closing
        self._send_queues = send_queues
        self._senders = senders
        self._budget = budget
        self._timeout = timeout
        self._on_check = on_check
        self._planned = False

    @requires_lock("_lock")
    def start(self) -> None:
        """There is something to check, or will be soon."""
        if not self._planned:
            self._planned = True
            self._timers.call_later(min(CHECK_INTERVAL_SECONDS, self._timeout / 4), self._check)

    def _check(self) -> None:
        if self._closing.is_set():
            return
        now = time.monotonic()
        with self._lock:
            self._planned = False
            callbacks = self.expire(now)
            if not all(send_queue.idle for send_queue in self._send_queues.values()):
                self.start()
        self._on_check()
        run_callbacks(callbacks)

    @requires_lock("_lock")
    def expire(self, now: float) -> Callbacks:
        """Fails sub-batches that are too old. Unsent ones are dropped; others stay until their outcome is known.

        ``now`` is in monotonic seconds.
        """
        callbacks: Callbacks = []
        dropped = False
        for send_queue in self._send_queues.values():
            sender = self._senders.get(send_queue.segment.name)
            cause = sender.last_failure if sender is not None else None
            for sent in send_queue.in_flight:
                assert isinstance(sent.sub_batch, SubBatch)
                if now - sent.sub_batch.created_at < self._timeout:
                    break
                if not sent.sub_batch.timed_out:
                    sent.sub_batch.timed_out = True
                    callbacks += self._time_out(sent.sub_batch, cause)
            while send_queue.queue:
                sub_batch = send_queue.queue[0]
                assert isinstance(sub_batch, SubBatch)
                if now - sub_batch.created_at < self._timeout:
                    break
                send_queue.queue.popleft()
                large = sub_batch.large_value
                if large is not None and not large.uploaded:
                    large.reserved = sub_batch.cost  # the upload still has the bytes
                else:
                    self._budget.release(sub_batch.cost)
                callbacks += self._time_out(sub_batch, cause)
                dropped = True
        if dropped:
            for sender in self._senders.values():
                sender.notify()  # what was dropped may have held back what is behind it
        return callbacks

    def _time_out(self, sub_batch: SubBatch, cause: SmqError | None) -> Callbacks:
        error = delivery_timeout(self._timeout, cause)
        large = sub_batch.large_value
        if large is not None and not large.uploaded:
            error = DeliveryTimeout(
                f"a value of {large.value.size} bytes could not be uploaded to the filer within {self._timeout} s, so "
                "its message is not in the log. Check the connection to the filer, or raise the producer's timeout"
            )
        return sub_batch.delivery_state.failed(sub_batch.rows, error)
