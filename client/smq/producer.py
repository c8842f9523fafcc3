"""The producer as a program sees it: send one message, write a table, flush, close."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from smq.accumulate import ROW_OVERHEAD, Accumulation, check_headers, check_key, check_timestamp, check_value
from smq.cutting import Piece
from smq.delivery import (
    OPEN_ENDED,
    Delivery,
    Fate,
    MessageDelivery,
    Receipt,
    TableDelivery,
    TableReceipt,
    timed_out,
)
from smq.engine import Engine
from smq.keys import Keyless
from smq.tables import Shaper, cut_rows, too_large, within_limit
from smq_core.errors import InvalidRequest

if TYPE_CHECKING:
    from smq.view import TopicView

SPARE_BYTES = 64 << 10
"""Of a broker's limit for a batch: what its columns need beside a message's own bytes."""

MOST_AT_ONCE = 4
"""Without lingering a small batch leaves at once while fewer than so many have no outcome, after lingering while none
has none; else it waits for one of them, and takes in what comes. What is late would only get later by many batches."""

SMALL_BYTES = 64 << 10
"""A batch with more than that is worth its own cost, and waits for none."""

PATIENCE = 0.02
"""How old a batch gets at most by waiting, in seconds: those without an outcome may be another segment's."""

Headers = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]


class Producer:
    """Made by :meth:`smq.Client.producer`. Safe from many threads; what one thread sends stays in its order per key.

    Messages are batched: they leave after ``linger`` seconds or when a batch is full; a small batch up to 20 ms later
    when several have no outcome yet. When the program falls silent nothing is lost, ``close`` (or the end of
    the ``with`` block) delivers all that was handed over.
    """

    def __init__(
        self,
        view: TopicView,
        *,
        linger: float,
        batch_bytes: int,
        max_in_flight: int,
        timeout: float,
        producer_id: str | None,
        epoch: int,
    ) -> None:
        if linger < 0 or batch_bytes < 1 or max_in_flight < 1 or timeout <= 0 or epoch < 0:
            raise InvalidRequest("linger and epoch are 0 or more; batch_bytes, max_in_flight and timeout more than 0")
        self._shaper = Shaper(view.known.topic)
        self._linger = linger
        self._most_at_once = 1 if linger else MOST_AT_ONCE
        self._batch_bytes = batch_bytes
        self._timeout = timeout
        self.producer_id = producer_id or uuid.uuid4().hex
        self._engine = Engine(view, self._shaper, self.producer_id, epoch, timeout, max_in_flight)
        self._keyless = Keyless(view.known.topic.spec.partitions, random.randrange(1 << 30))
        self._plain = not self._shaper.typed
        self._limit = self._engine.max_batch_bytes - SPARE_BYTES
        # Taken first, and held from the taking of messages to their hand-over: it keeps their order.
        self._order = threading.Lock()
        self._lock = threading.Lock()
        self._due = threading.Condition(self._lock)
        self._current: Accumulation | None = None
        self._ready: deque[Accumulation] = deque()
        self._fates: deque[Fate] = deque()
        self._error: BaseException | None = None
        self._closed = self._waits = False
        self._engine.settled = self._some_settled
        self._sender = threading.Thread(target=self._send_all, name=f"smq-sender-{view.name}", daemon=True)
        self._sender.start()

    def send(
        self,
        value: bytes | Mapping[str, object] | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
    ) -> Delivery[Receipt]:
        """Hands over one message and returns the receipt to come. Blocks while ``max_in_flight`` bytes are on the way.

        value: bytes, or on a topic with a schema a mapping of its columns. key: bytes; messages of one key keep their
        order, those without one are spread. On a topic with a schema the key is in the value. headers: pairs of
        str and bytes. timestamp: microseconds since 1970 or a datetime (naive means UTC); None: now.

        Raises InvalidRequest, SchemaMismatch, MessageTooLarge, Overloaded (blocked longer than the producer's timeout),
        ProducerFenced.
        """
        if self._plain and headers is None and timestamp is None and type(value) is bytes:
            if type(key) is bytes:
                return self._append(value, key, None, time.time_ns() // 1000, len(value) + len(key) + ROW_OVERHEAD)
            if key is None:
                return self._append(value, None, None, time.time_ns() // 1000, len(value) + ROW_OVERHEAD)
        return self._send_checked(value, key, headers, timestamp)

    def _send_checked(self, value: object, key: object, headers: object, timestamp: object) -> Delivery[Receipt]:
        plain_value, size = check_value(value, self._shaper)
        plain_key = check_key(key, self._shaper)
        pairs = check_headers(headers) if headers is not None else None
        now = check_timestamp(timestamp) if timestamp is not None else time.time_ns() // 1000
        size += ROW_OVERHEAD + len(plain_key or b"")
        size += sum(len(k) + len(v or b"") for k, v in pairs) if pairs else 0
        return self._append(plain_value, plain_key, pairs, now, size)

    def _append(
        self, value: object, key: bytes | None, headers: list[tuple[str, bytes | None]] | None, now: int, size: int
    ) -> Delivery[Receipt]:
        if size > self._limit:
            raise too_large(size, self._limit)
        while True:
            with self._lock:
                current = self._current
                if current is None and not self._engine.full:
                    current = self._begin()
                if current is not None:
                    values = current.values
                    row = len(values)
                    values.append(value)
                    current.keys.append(key)
                    current.times.append(now)
                    if headers:
                        current.headers[row] = headers
                    current.nbytes += size
                    if current.nbytes >= self._batch_bytes:
                        self._seal_current()
                    return MessageDelivery(current.fate, row)
            self._engine.wait_for_room(self._timeout)

    def _begin(self) -> Accumulation:
        if self._closed:
            raise InvalidRequest("the producer is closed")
        self._forget_settled()
        current = self._current = Accumulation(Fate(OPEN_ENDED, self._engine.lock), time.monotonic())
        self._fates.append(current.fate)
        self._due.notify()
        return current

    def _seal_current(self) -> None:
        """Nothing more joins the present batch. The caller holds the lock."""
        current, self._current = self._current, None
        if current is not None:
            current.fate.fix(len(current.values))
            self._engine.take(current.nbytes)
            self._ready.append(current)
            self._due.notify()

    def write(
        self, table: pa.Table | pa.RecordBatch, key: str | pa.Array | pa.ChunkedArray | None = None
    ) -> Delivery[TableReceipt]:
        """Hands over a whole table, the fast way; the receipt is for all its rows. Blocks as ``send`` does.

        A topic without a schema takes the columns ``key``, ``value``, ``headers``, ``timestamp``; missing ones are
        filled (timestamp with now). A topic with a schema takes its own columns, ``headers`` and ``timestamp``.
        ``key`` names the column that is hashed, by default the topic's key column or ``key``; without a schema it may
        be an array too. Binary and string columns hash their bytes, others as :func:`smq.keys.canonical` says. Rows
        without a key go to one partition per batch, in turn.

        Raises SchemaMismatch (``expected``: the schema), InvalidRequest (no such key column), MessageTooLarge,
        Overloaded, ProducerFenced.
        """
        if self._closed:
            raise InvalidRequest("the producer is closed")
        shaped, hashed = self._shaper.check(table, key)
        limit = self._engine.max_batch_bytes - SPARE_BYTES
        self._shaper.check_sizes(shaped, limit)
        fates: list[Fate] = []
        for large in cut_rows(shaped, self._batch_bytes):
            for part in within_limit(large, limit):
                fate = Fate(part.num_rows, self._engine.lock)
                self._engine.reserve(part.nbytes, self._timeout)
                with self._order:
                    self._hand_over(all_of_it=True)
                    batch, places = self._shaper.wire(part, hashed, time.time_ns() // 1000, self._keyless)
                    with self._lock:
                        self._forget_settled()
                        self._fates.append(fate)
                    self._engine.submit(Piece(batch, fate, None, part.nbytes, time.monotonic()), places)
                fates.append(fate)
        return TableDelivery(fates)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was handed over so far has its outcome; ``timeout`` in seconds, None: the producer's.

        Raises DeliveryTimeout, or the first error of a message since the last flush.
        """
        patience = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + patience
        with self._order:
            self._hand_over(all_of_it=True)
        with self._lock:
            waiting = list(self._fates)
        for fate in waiting:
            try:
                fate.wait(-1, max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise timed_out(patience) from None
        with self._lock:
            self._forget_settled()
            error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Flushes, then ends the streams. Repeatable. Raises what ``flush`` raises, after everything has ended."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._due.notify()
        try:
            # A batch is reported as timed out a moment after its time: let that say what happened.
            self.flush(self._timeout + 1.0)
        finally:
            self._sender.join(5)
            self._engine.close()

    def _send_all(self) -> None:
        """The sender's thread: hands batches over when they are full or have lingered."""
        while True:
            with self._lock:
                while not self._ready and not self._closed:
                    left = None
                    if self._current is not None:
                        left = self._wait_left(self._current)
                        if left <= 0:
                            break
                    self._due.wait(left)
                if self._closed and not self._ready and self._current is None:
                    return
            with self._order:
                self._hand_over(all_of_it=False)

    def _hand_over(self, all_of_it: bool) -> None:
        """What was gathered goes to the engine, as batches. The caller holds ``_order``."""
        while True:
            with self._lock:
                if not self._ready and (all_of_it or self._lingered()):
                    self._seal_current()
                if not self._ready:
                    return
                one = self._ready.popleft()
            try:
                batch, places = one.wire(self._shaper, self._keyless)
                self._engine.submit(Piece(batch, one.fate, None, one.nbytes, one.born), places)
            except Exception as error:
                self._engine.give_up(one.fate, one.nbytes, error)

    def _lingered(self) -> bool:
        current = self._current
        return current is not None and (self._closed or self._wait_left(current) <= 0)

    def _wait_left(self, current: Accumulation) -> float:
        """For how many seconds this batch has still to wait. The caller holds the lock."""
        age = time.monotonic() - current.born
        if age < self._linger:
            return self._linger - age
        if age >= PATIENCE or current.nbytes > SMALL_BYTES:
            return 0.0
        self._waits = True  # before it is looked, so that no outcome is missed
        self._forget_settled()
        self._waits = len(self._fates) > self._most_at_once
        return PATIENCE - age if self._waits else 0.0

    def _some_settled(self) -> None:
        if self._waits:
            with self._lock:
                self._due.notify()

    def _forget_settled(self) -> None:
        """Lets go of the oldest batches that have their outcome; keeps the first error. The caller holds the lock."""
        while self._fates and self._fates[0].left == 0:
            fate = self._fates.popleft()
            self._error = self._error or fate.first_error()

    def would_block(self) -> bool:
        """Whether ``send`` would wait now, because ``max_in_flight`` bytes are on the way."""
        return self._current is None and self._engine.full and self._engine.failure is None

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
