"""Collects single messages in batches, and hands batches, tables and uploads to the engine in the order of the calls.

A batch is sent within ``linger`` seconds, or when it is full: once in ``linger`` all producers of the client send what
they have. After a pause of all of them the first batch is sent at once. A small one waits a little longer while others
have no outcome yet. The client's timers submit what is due.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from time import time_ns

from smq.forks import renew
from smq.lock_order import ClientLock
from smq.producing.batching.batch_builder import BatchBuilder
from smq.producing.batching.batch_delay import SMALL_BATCH_BYTES, remaining_delay
from smq.producing.batching.message_group import MessageGroup, MessageSpan
from smq.producing.batching.partitioning import SubBatch
from smq.producing.batching.row_batch import is_worth_joining
from smq.producing.callbacks import CallbacksAfter, refuse_to_wait
from smq.producing.delivery_state import OPEN_ROW_COUNT, DeliveryState, MessageDelivery, delivery_timeout
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.keys import KeylessPartitioner, RowPartitions
from smq.producing.engine import ProducerEngine
from smq.producing.exit_flush import flush_at_exit
from smq.producing.runtime.timers import SLACK_SECONDS, Timers
from smq.producing.unresolved_batches import UnresolvedBatches
from smq_core.errors import InvalidRequest
from smq_storage.process.locks import make_lock, make_rlock, requires_lock

log = logging.getLogger(__name__)

# A program that ends without ``close`` says what it waits for after this long.
EXIT_REPORT_SECONDS = 1.0


class MessageBatcher:
    """See the module's docstring. Safe from many threads.

    ``linger`` and ``timeout`` are in seconds. ``make_engine`` gets what the engine calls after batches have got their
    outcomes.
    """

    def __init__(
        self,
        *,
        topic: str,
        keyless: KeylessPartitioner,
        linger: float,
        batch_bytes: int,
        timeout: float,
        make_engine: Callable[[Callable[[], None]], ProducerEngine],
        timers: Timers,
    ) -> None:
        self._keyless = keyless
        self._linger = linger
        self._batch_bytes = batch_bytes
        self._timeout = timeout
        # Always taken before _lock. Held while batches are taken and submitted, which keeps the order of messages.
        # Callbacks wait until it is released. A signal handler of the program may write while its thread holds it.
        self._handover_lock = make_rlock(ClientLock.HANDOVER)
        self._lock = make_lock(ClientLock.BATCHER)
        self._timers = timers
        self._submits_at = float("inf")
        """When the timers will submit what is due, in monotonic seconds."""
        self._current: BatchBuilder | None = None
        self._ready: deque[BatchBuilder] = deque()
        self._unresolved = UnresolvedBatches()
        self._waiting_for_outcome = False
        self.closed = False
        self._topic = topic
        self.engine = make_engine(self._on_resolved)
        flush_at_exit(self)

    # ---- from the producer

    def append(
        self,
        encoder: BatchEncoder,
        value: object,
        key: bytes | None,
        size: int,
        headers: list[tuple[str, bytes | None]] | None = None,
        timestamp: int | None = None,
    ) -> MessageDelivery:
        """Adds a checked message of ``size`` bytes. Blocks while there is no capacity.

        ``timestamp`` is in microseconds since 1970; None means now.

        Raises InvalidRequest if this is closed, Overloaded, or the error that ended the producer.
        """
        now = time_ns()
        lock = self._lock
        while True:
            lock.acquire()  # a ``with`` statement takes twice as long, and every message pays for it
            try:
                current = self._current
                if current is None or current.encoder is not encoder:
                    current = self._open_batch(encoder)
                if current is not None:
                    # As BatchBuilder.add and message_delivery do, without their calls, which would take 0.2 us more.
                    times = current.times
                    row = len(times)
                    if encoder.typed:
                        current.values.extend(value)  # type: ignore[arg-type]
                    else:
                        current.values.append(value)
                    if key is not None:
                        if len(current.keys) < row:
                            current.pad_keys()
                        current.keys.append(key)
                    times.append(now)
                    if headers:
                        current.headers[row] = headers
                    if timestamp is not None:
                        current.timestamps[row] = timestamp
                    current.nbytes = nbytes = current.nbytes + size
                    if nbytes >= self._batch_bytes:
                        self._close_current()
                    elif nbytes > SMALL_BATCH_BYTES >= nbytes - size and self._waiting_for_outcome:
                        self._plan()  # once for a batch, because it costs more than all the rest
                    delivery = MessageDelivery()
                    delivery.state = current.delivery_state
                    delivery.row = row
                    return delivery
            finally:
                lock.release()
            self.engine.wait_for_capacity(self._timeout)

    def append_some(
        self, encoder: BatchEncoder, group: MessageGroup, start: int, now: int, largest: int, *, reserved: bool
    ) -> MessageSpan:
        """Adds messages of a group from ``start`` on until the batch is full or one is larger than ``largest``.

        At least one. ``now`` is their time, in nanoseconds since 1970. Does not wait for capacity that is ``reserved``.
        Raises as ``append``.
        """
        while True:
            with self._lock:
                current = self._open_batch(encoder, reserved)
                if current is not None:
                    stop = group.end_of_batch(start, self._batch_bytes - current.nbytes, largest)
                    row, was_small = len(current), current.nbytes <= SMALL_BATCH_BYTES
                    current.add_some(group.values[start:stop], group.keys[start:stop], now)
                    current.nbytes += group.bytes_between(start, stop)
                    if current.nbytes >= self._batch_bytes:
                        self._close_current()
                    elif was_small and current.nbytes > SMALL_BATCH_BYTES and self._waiting_for_outcome:
                        self._plan()
                    return MessageSpan(current.delivery_state, row, row + stop - start)
            self.engine.wait_for_capacity(self._timeout)

    def append_batch(self, batch: BatchBuilder) -> bool:
        """Adds a batch for which the engine has reserved capacity. False if this is closed."""
        with self._lock:
            if self.closed:
                return False
            self._close_current()
            self._unresolved.add(batch.delivery_state)
            self._ready.append(batch)
            self._plan()
            return True

    def submit(self, state: DeliveryState, make: Callable[[], tuple[SubBatch, RowPartitions | None]]) -> None:
        """Submits what ``make`` returns, after all that was added before. Raises the error that ended the producer."""
        with CallbacksAfter(), self._handover_lock:
            self._submit_ready(include_current=True)
            sub_batch, row_partitions = make()
            with self._lock:
                self._unresolved.add(state)
            self.engine.submit(sub_batch, row_partitions)

    def flush(self, timeout: float) -> None:
        """Waits for the outcome of everything up to now; ``timeout`` in seconds.

        Raises DeliveryTimeout, or the first error since the last flush that the program did not get from a delivery.
        """
        deadline = time.monotonic() + timeout
        with CallbacksAfter(), self._handover_lock:
            self._submit_ready(include_current=True)
        with self._lock:
            waiting = self._unresolved.all()
        for delivery_state in waiting:
            try:
                delivery_state.wait(-1, max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise delivery_timeout(timeout) from None
        with self._lock:
            error = self._unresolved.take_error()
        if error is not None:
            raise error

    def close(self) -> bool:
        """Takes no more messages from now on. False if this was closed before.

        Raises InvalidRequest in a callback, and changes nothing, if outcomes have to be waited for.
        """
        with self._lock:
            if self.closed:
                return False
            if not self._unresolved.has_outcomes():
                refuse_to_wait()
            self.closed = True
            return True

    def deliver_at_exit(self) -> None:
        """The main thread ends without ``close``. Other threads may send more."""
        if not self.closed:
            with contextlib.suppress(TimeoutError, KeyboardInterrupt):
                self._wait_at_exit(time.monotonic() + self._timeout)

    def flush_at_exit(self) -> None:
        """The program ends without ``close``. Logs what was not delivered then."""
        if self.closed:
            return
        self.deliver_at_exit()
        with self._lock:
            lost = self._unresolved.undelivered()
        if lost:
            log.warning(
                "the program ended, and %d messages to %s were not delivered: close the producer, which raises the "
                "reason",
                lost,
                self._topic,
            )

    def _wait_at_exit(self, deadline: float) -> None:
        """Raises TimeoutError at the deadline."""
        with CallbacksAfter(), self._handover_lock:
            self._submit_ready(include_current=True)
        with self._lock:
            waiting = self._unresolved.all()
        reported = False
        for state in waiting:
            try:
                state.wait(-1, EXIT_REPORT_SECONDS if not reported else max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                if reported:
                    raise
                reported = True
                log.warning(
                    "the program ends without close of its producer of %s: it waits up to %g s for %d messages",
                    self._topic,
                    self._timeout,
                    sum(state.left for state in waiting),
                )
                state.wait(-1, max(0.0, deadline - time.monotonic()))

    def end_in_fork(self, error: BaseException) -> None:
        """This is the copy in a forked process, where its threads do not exist. Its deliveries fail."""
        renew(self.engine.lock)  # which deliveries take, also those that have their outcome
        if self._current is not None:
            self._current.delivery_state.set_row_count(len(self._current))
        for state in self._unresolved.all():
            state.end_in_fork(error)

    @property
    def full(self) -> bool:
        """Whether the next message would have to wait."""
        return self._current is None and self.engine.full and self.engine.failure is None

    # ---- batches; the caller holds the lock

    @requires_lock("_lock")
    def _open_batch(self, encoder: BatchEncoder, reserved: bool = False) -> BatchBuilder | None:
        """The batch that takes the next message; None while there is no capacity, and none is ``reserved``."""
        current = self._current
        if current is not None and current.encoder is not encoder:
            self._close_current()  # it has rows of another schema version
            current = None
        if current is None and (reserved or not self.engine.full):
            current = self._start_batch(encoder)
        return current

    @requires_lock("_lock")
    def _start_batch(self, encoder: BatchEncoder) -> BatchBuilder:
        if self.closed:
            raise InvalidRequest("the producer is closed")
        delivery_state = DeliveryState(OPEN_ROW_COUNT, self.engine.lock)
        now = time.monotonic()
        current = self._current = BatchBuilder(encoder, delivery_state, now)
        if self._linger:
            current.due_at = self._timers.begin_batch(now, self._linger)
        self._unresolved.add(delivery_state)
        self._plan()
        return current

    @requires_lock("_lock")
    def _close_current(self, plan: bool = True) -> None:
        """Closes the current batch to further messages. ``plan``: lets the timers submit it."""
        current, self._current = self._current, None
        if current is not None:
            current.delivery_state.set_row_count(len(current))
            self.engine.reserve_now(current.nbytes)
            self._ready.append(current)
            if plan:
                self._plan()

    @requires_lock("_lock")
    def _current_due(self) -> bool:
        # Timers call a little early: what is due so soon counts as due, and no tick is taken for one to come.
        current, now = self._current, time.monotonic() + SLACK_SECONDS
        return current is not None and (self.closed or self._remaining_wait(current, now) <= 0.0)

    @requires_lock("_lock")
    def _remaining_wait(self, current: BatchBuilder, now: float) -> float:
        """How many more seconds this batch should wait at that time."""
        if now < current.due_at:
            return current.due_at - now
        if current.nbytes > SMALL_BATCH_BYTES:
            return 0.0
        self._waiting_for_outcome = True  # set before the check, so that no outcome is missed
        left = remaining_delay(self._unresolved.count(), now - current.created_at, lingers=bool(self._linger))
        self._waiting_for_outcome = left > 0.0
        return left

    # ---- from the timers

    @requires_lock("_lock")
    def _plan(self) -> None:
        """Lets the timers submit what is due when it is."""
        if self._ready:
            at = 0.0
        elif self._current is not None:
            now = time.monotonic()
            at = now + self._remaining_wait(self._current, now)
        else:
            return
        if at < self._submits_at:
            self._submits_at = at
            self._timers.call_at(at, self._submit_due)

    def _submit_due(self) -> None:
        with self._lock:
            if time.monotonic() + SLACK_SECONDS < self._submits_at:
                return  # an earlier call has submitted what this one was for
            self._submits_at = float("inf")
        try:
            with CallbacksAfter(), self._handover_lock:
                self._submit_ready(include_current=False)
        finally:
            with self._lock:
                self._plan()

    @requires_lock("_handover_lock")
    def _submit_ready(self, include_current: bool) -> None:
        """Submits the batches that are ready to the engine."""
        while True:
            with self._lock:
                if not self._ready and (include_current or self._current_due()):
                    self._close_current(plan=False)
                if not self._ready:
                    return
                one = self._ready.popleft()
            try:
                rows = one.to_rows(self._keyless)
                sub_batch = SubBatch(
                    batch=rows if is_worth_joining(rows, one.nbytes) else rows.encode(),
                    delivery_state=one.delivery_state,
                    rows=None,
                    cost=one.nbytes,
                    created_at=one.created_at,
                    schema_version=one.encoder.version,
                    large_value=one.large_value,
                )
                self.engine.submit(sub_batch, rows.partitions)
            except Exception as error:
                self.engine.fail_batch(one.delivery_state, one.nbytes, error)

    def _on_resolved(self) -> None:
        if self._waiting_for_outcome:
            with self._lock:
                self._plan()
