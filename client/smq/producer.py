"""The producer: send messages, write tables, flush, close."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal

import pyarrow as pa

from smq.delivery import Delivery, FilesReceipt, Receipt, TableReceipt
from smq.producing.batch_builder import (
    ROW_OVERHEAD_BYTES,
    BatchBuilder,
    check_headers,
    check_key,
    check_timestamp,
    check_value,
)
from smq.producing.delivery_state import (
    OPEN_ROW_COUNT,
    DeliveryState,
    MessageDelivery,
    TableDelivery,
    delivery_timeout,
)
from smq.producing.encoding.batch_encoder import BatchEncoder, message_too_large, split_rows, split_to_limit
from smq.producing.encoding.keys import KeylessPartitioner
from smq.producing.engine import ProducerEngine
from smq.producing.partitioning import SubBatch
from smq.producing.producer_claims import claim_epoch
from smq.producing.uploads.large_values import LargeValueUploader
from smq.producing.uploads.reference_publisher import ReferencePublisher, goes_by_reference
from smq.producing.uploads.upload_delivery import UploadDeliveryState
from smq.producing.uploads.uploaded_rows import UploadedFile, UploadedRows
from smq.transport.schema_versions import SchemaVersions
from smq_core.errors import InvalidRequest, SmqError

if TYPE_CHECKING:
    from smq.transport.topic_view import TopicSnapshot, TopicView

CLAIM_TIMEOUT_SECONDS = 30.0
BATCH_OVERHEAD_BYTES = 64 << 10
"""The part of a broker's batch limit that is kept for what the columns need beside a message's own bytes."""

MAX_UNACKED_BATCHES = 4
"""Without ``linger``, a small batch is sent at once while fewer than this many other batches have no outcome yet; with
``linger``, only while none is without an outcome. Otherwise the batch waits and takes in more messages, because many
small batches would make a slow broker slower."""

SMALL_BATCH_BYTES = 64 << 10
"""A larger batch is worth its own cost and does not wait for outcomes."""

MAX_BATCH_DELAY_SECONDS = 0.02
"""How old a batch may get by waiting for outcomes, because these may be those of another segment."""

MIN_INLINE_BYTES = 64 << 10
MAX_LARGE_VALUE_BYTES = 1 << 30
"""A value is one PUT, and whoever reads it has all of it in memory."""

REFERENCE_COST_BYTES = 1024
"""What the references to an upload count of ``max_in_flight``, because none of its rows stay in memory."""

Headers = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]


class Producer:
    """Publishes to a topic; made by :meth:`smq.Client.producer`. Safe from many threads.

    Messages of one key that one thread sends keep their order. Messages are batched: a batch is sent after ``linger``
    seconds or when it is full, and a small one up to 20 ms later if several batches have no outcome yet. ``close`` (or
    the end of the ``with`` block) delivers everything that was handed over.
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
        epoch: int | None,
        max_inline_bytes: int | None = None,
    ) -> None:
        if max_inline_bytes is not None and max_inline_bytes < MIN_INLINE_BYTES:
            raise InvalidRequest(
                f"max_inline_bytes must be at least {MIN_INLINE_BYTES}, not {max_inline_bytes}: smaller values cost "
                "more as objects"
            )
        if linger < 0 or batch_bytes < 1 or max_in_flight < 1 or timeout <= 0 or (epoch or 0) < 0:
            raise InvalidRequest(
                "linger and epoch must be 0 or more; batch_bytes, max_in_flight and timeout must be more than 0"
            )
        if epoch is not None and producer_id is None:
            raise InvalidRequest("an epoch belongs to a producer_id: pass both, or leave out epoch=")
        instance = uuid.uuid4().hex[:16]
        if producer_id is not None:
            epoch = claim_epoch(view, producer_id, instance, epoch, CLAIM_TIMEOUT_SECONDS)
        self._view = view
        self._encoder = BatchEncoder(view.snapshot.topic, SchemaVersions(view.snapshot).newest)
        self._linger = linger
        self._max_unacked_batches = 1 if linger else MAX_UNACKED_BATCHES
        self._batch_bytes = batch_bytes
        self._timeout = timeout
        self.producer_id = producer_id or uuid.uuid4().hex
        self.epoch = epoch or 0
        self._keyless = KeylessPartitioner(view.snapshot.topic.spec.partitions, random.randrange(1 << 30))
        self._untyped = not self._encoder.typed
        # Always taken before _lock. Held while batches are taken and submitted, which keeps the order of messages.
        self._handover_lock = threading.Lock()
        self._lock = threading.Lock()
        self._due = threading.Condition(self._lock)
        self._current: BatchBuilder | None = None
        self._ready: deque[BatchBuilder] = deque()
        self._delivery_states: deque[DeliveryState] = deque()
        self._error: BaseException | None = None
        self._closed = self._waiting_for_outcome = False
        self._engine = ProducerEngine(
            view,
            self.producer_id,
            self.epoch,
            instance,
            timeout,
            max_in_flight,
            self._on_resolved,
        )
        self._references = ReferencePublisher(
            view,
            self.producer_id,
            self.epoch,
            keyless=self._keyless,
            batch_bytes=batch_bytes,
            timeout=timeout,
            lock=self._engine.lock,
            encoder=lambda: self._encoder,
            submit=self._submit_uploads,
        )
        self._max_message_bytes = self._engine.max_batch_bytes - BATCH_OVERHEAD_BYTES
        limit = max_inline_bytes if max_inline_bytes is not None and self._untyped else self._max_message_bytes
        self._max_inline_bytes = min(limit, self._max_message_bytes)
        self._large_values = LargeValueUploader(
            view.snapshot.topic.uid,
            self.producer_id,
            self.epoch,
            timeout,
            lambda: view.open_upload_store(timeout),
            self._engine.large_value_done,
            lambda: self._engine.failure is not None,
        )
        self._sender_thread = threading.Thread(
            target=self._run_sender, name=f"smq-batch-sender-{view.name}", daemon=True
        )
        self._sender_thread.start()
        view.add_listener(self._on_layout_changed)

    def send(
        self,
        value: bytes | Mapping[str, object] | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
    ) -> Delivery[Receipt]:
        """Sends one message and returns its delivery. Blocks while ``max_in_flight`` bytes have no outcome yet.

        value: bytes, or on a topic with a schema a mapping of its columns. A value that a column cannot hold exactly
            as it is gets SchemaMismatch (:mod:`smq.producing.encoding.exact_cast` has the rules). When the topic's
            schema changes, later messages may use the new columns; a column that is left out gets null.
        key: bytes. Messages of one key keep their order, messages without a key are spread over the segments. On a
            topic with a schema the key is a column of the value.
        headers: pairs of str and bytes.
        timestamp: microseconds since 1970 or a datetime (naive means UTC); None means now.

        On a topic without a schema, the value of a message above ``max_inline_bytes`` is uploaded to the filer as an
        object of its own, up to 1 GiB, and the message refers to it. The order of each key is the same. If the upload
        fails, so does the delivery, with StoreUnavailable (StoreDenied if the filer refuses the credentials), and the
        producer goes on.

        Raises InvalidRequest, SchemaMismatch, MessageTooLarge, Overloaded (blocked longer than the producer's timeout),
        ProducerFenced.
        """
        if self._untyped and headers is None and timestamp is None and type(value) is bytes:
            if type(key) is bytes:
                size = len(value) + len(key) + ROW_OVERHEAD_BYTES
                return self._append(self._encoder, value, key, None, time.time_ns() // 1000, size)
            if key is None:
                size = len(value) + ROW_OVERHEAD_BYTES
                return self._append(self._encoder, value, None, None, time.time_ns() // 1000, size)
        return self._send_checked(value, key, headers, timestamp)

    def _send_checked(self, value: object, key: object, headers: object, timestamp: object) -> Delivery[Receipt]:
        encoder = self._encoder
        plain_value, size = check_value(value, encoder)
        plain_key = check_key(key, encoder)
        pairs = check_headers(headers) if headers is not None else None
        now = check_timestamp(timestamp) if timestamp is not None else time.time_ns() // 1000
        size += ROW_OVERHEAD_BYTES + len(plain_key or b"")
        size += sum(len(k) + len(v or b"") for k, v in pairs) if pairs else 0
        return self._append(encoder, plain_value, plain_key, pairs, now, size)

    def _append(
        self,
        encoder: BatchEncoder,
        value: object,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        now: int,
        size: int,
    ) -> Delivery[Receipt]:
        if size > self._max_inline_bytes:
            if self._untyped and isinstance(value, bytes) and len(value) >= MIN_INLINE_BYTES:
                return self._append_large(encoder, value, key, headers, now, size)
            if size > self._max_message_bytes:
                raise message_too_large(size, self._max_message_bytes)
        while True:
            with self._lock:
                current = self._current
                if current is not None and current.encoder is not encoder:
                    self._close_current()  # it has rows of another schema version
                    current = None
                if current is None and not self._engine.full:
                    current = self._start_batch(encoder)
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
                        self._close_current()
                    return MessageDelivery(current.delivery_state, row)
            self._engine.wait_for_capacity(self._timeout)

    def _append_large(
        self,
        encoder: BatchEncoder,
        value: bytes,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        now: int,
        size: int,
    ) -> Delivery[Receipt]:
        """Sends a message whose value is uploaded. It is a batch of its own, so that the ones before do not wait."""
        for nbytes, limit in ((size - len(value), self._max_message_bytes), (len(value), MAX_LARGE_VALUE_BYTES)):
            if nbytes > limit:
                raise message_too_large(nbytes, limit)
        self._engine.reserve(size, self._timeout)
        one = BatchBuilder(encoder, DeliveryState(1, self._engine.lock), time.monotonic())
        pending = one.large_value = self._large_values.prepare(value)
        one.values.append(None)
        one.keys.append(key)
        one.times.append(now)
        one.headers[0] = [*(headers or ()), pending.value.header()]
        one.nbytes = size
        with self._lock:
            closed = self._closed
            if not closed:
                self._close_current()
                self._drop_resolved()
                self._delivery_states.append(one.delivery_state)
                self._ready.append(one)
                self._due.notify()
        if closed:
            error = InvalidRequest("the producer is closed")
            self._engine.fail_batch(one.delivery_state, size, error)
            raise error
        self._large_values.start(pending, value, one.created_at)
        return MessageDelivery(one.delivery_state, 0)

    def _start_batch(self, encoder: BatchEncoder) -> BatchBuilder:
        if self._closed:
            raise InvalidRequest("the producer is closed")
        self._drop_resolved()
        delivery_state = DeliveryState(OPEN_ROW_COUNT, self._engine.lock)
        current = self._current = BatchBuilder(encoder, delivery_state, time.monotonic())
        self._delivery_states.append(current.delivery_state)
        self._due.notify()
        return current

    def _close_current(self) -> None:
        """Closes the current batch to further messages. The caller holds the lock."""
        current, self._current = self._current, None
        if current is not None:
            current.delivery_state.set_row_count(len(current.values))
            self._engine.reserve_now(current.nbytes)
            self._ready.append(current)
            self._due.notify()

    def write(
        self,
        table: pa.Table | pa.RecordBatch,
        key: str | pa.Array | pa.ChunkedArray | None = None,
        *,
        by_reference: bool | Literal["auto"] = False,
    ) -> Delivery[TableReceipt]:
        """Sends a whole table, the fastest way to publish; its receipt covers all rows. Blocks as ``send`` does.

        A topic without a schema has the columns ``key``, ``value``, ``headers`` and ``timestamp``; a topic with a
        schema has its own columns, ``headers`` and ``timestamp``. Columns that may be missing are filled, a missing
        timestamp with the present time. Columns of another type are cast if that changes no value, by the same rules
        as in ``send``; the error names the column, the row and the value.

        ``key`` names the column that is hashed, by default the topic's key column or ``key``. Without a schema it may
        also be an array. Binary and string columns are hashed by their bytes, others by the bytes that
        :mod:`smq.producing.encoding.keys` defines. Rows without a key go to one partition per batch, in turn.

        With ``by_reference`` the rows go to the filer as Parquet files, and the brokers get references to these, which
        costs them nearly nothing. This returns when all files are uploaded; then they are published. The order among
        this producer's messages is the same. ``auto`` does so for large tables. docs/producers.md says when it pays.

        Raises SchemaMismatch (``expected`` is the schema), InvalidRequest (no such key column), MessageTooLarge,
        Overloaded, ProducerFenced; by reference also StoreUnavailable. The delivery of a reference that a broker does
        not accept fails with ReferenceRejected, and the producer goes on.
        """
        if self._closed:
            raise InvalidRequest("the producer is closed")
        if goes_by_reference(table, by_reference):
            return self._references.publish_table(table, key)
        encoder = self._encoder
        converted, key_column = encoder.check(table, key)
        limit = self._engine.max_batch_bytes - BATCH_OVERHEAD_BYTES
        encoder.check_sizes(converted, limit)
        delivery_states: list[DeliveryState] = []
        for large in split_rows(converted, self._batch_bytes):
            for part in split_to_limit(large, limit):
                delivery_state = DeliveryState(part.num_rows, self._engine.lock)
                self._engine.reserve(part.nbytes, self._timeout)
                with self._handover_lock:
                    self._submit_ready(include_current=True)
                    batch, row_partitions = encoder.encode(part, key_column, time.time_ns() // 1000, self._keyless)
                    with self._lock:
                        self._drop_resolved()
                        self._delivery_states.append(delivery_state)
                    sub_batch = SubBatch(
                        batch, delivery_state, None, part.nbytes, time.monotonic(), schema_version=encoder.version
                    )
                    try:
                        self._engine.submit(sub_batch, row_partitions)
                    except SmqError as error:
                        self._engine.fail_batch(delivery_state, part.nbytes, error)
                        raise
                delivery_states.append(delivery_state)
        return TableDelivery(delivery_states)

    def publish_files(
        self, files: Sequence[str | os.PathLike[str] | IO[bytes]], key: str | None = None
    ) -> Delivery[FilesReceipt]:
        """Publishes the rows of Parquet files by reference (see ``write``).

        A file is a path, a binary file object, or ``s3://bucket/path`` for an object of any bucket of the filer, which
        is read with this client's credentials.

        The files' columns and ``key`` are as in ``write``. All files are checked and uploaded: those that
        :meth:`smq.Client.write_upload` wrote as they are, others read part by part, and encoded with their rows sorted
        by partition. Only then anything is published, file by file in the given order, so if one file
        is wrong, nothing is in the log. The receipt has the ranges of offsets of each file.

        Raises InvalidRequest (no Parquet file, a file that is given twice, no such key column) and SchemaMismatch with
        the name of the file, StoreUnavailable, Overloaded, ProducerFenced.
        """
        if self._closed:
            raise InvalidRequest("the producer is closed")
        return self._references.publish_files(files, key)

    def _submit_uploads(self, files: Sequence[UploadedFile], states: Sequence[UploadDeliveryState]) -> None:
        """Publishes uploads after all that was handed over before: all of them, or none if there is no capacity."""
        self._engine.reserve(REFERENCE_COST_BYTES * len(files), self._timeout)
        for number, (file, state) in enumerate(zip(files, states, strict=True)):
            with self._handover_lock:
                self._submit_ready(include_current=True)
                with self._lock:
                    self._drop_resolved()
                    self._delivery_states.append(state)
                sub_batch = SubBatch(
                    UploadedRows.all_of(file),
                    state,
                    state.all_rows(),
                    REFERENCE_COST_BYTES,
                    time.monotonic(),
                    schema_version=file.schema_version,
                )
                try:
                    self._engine.submit(sub_batch)
                except SmqError as error:
                    for unsubmitted in states[number:]:
                        self._engine.fail_batch(unsubmitted, REFERENCE_COST_BYTES, error)
                    raise

    def flush(self, timeout: float | None = None) -> None:
        """Waits for the outcome of everything sent so far; ``timeout`` in seconds, None means the producer's timeout.

        Raises DeliveryTimeout, or the first error of a message since the last flush.
        """
        timeout_seconds = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout_seconds
        with self._handover_lock:
            self._submit_ready(include_current=True)
        with self._lock:
            waiting = list(self._delivery_states)
        for delivery_state in waiting:
            try:
                delivery_state.wait(-1, max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise delivery_timeout(timeout_seconds) from None
        with self._lock:
            self._drop_resolved()
            error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Flushes, then ends the streams. Repeatable. Raises the errors of ``flush`` after everything has ended."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._due.notify()
        try:
            # A batch fails a moment after its timeout. Waiting for that gives the error of the message itself.
            self.flush(self._timeout + 1.0)
        finally:
            if self._sender_thread is not threading.current_thread():  # else a delivery callback closes the producer
                self._sender_thread.join(5)
            self._view.remove_listener(self._on_layout_changed)
            self._large_values.close()
            self._engine.close()

    def _on_layout_changed(self, snapshot: TopicSnapshot) -> None:
        """Encodes by the newest schema. The engine gives batches the version of their segments."""
        newest = SchemaVersions(snapshot).newest
        with self._lock:
            if newest.version > self._encoder.version:
                self._encoder = BatchEncoder(snapshot.topic, newest)

    def _run_sender(self) -> None:
        """The sender thread: submits batches when they are full or have waited long enough."""
        while True:
            with self._lock:
                while not self._ready and not self._closed:
                    left = None
                    if self._current is not None:
                        left = self._remaining_wait(self._current)
                        if left <= 0:
                            break
                    self._due.wait(left)
                if self._closed and not self._ready and self._current is None:
                    return
            with self._handover_lock:
                self._submit_ready(include_current=False)

    def _submit_ready(self, include_current: bool) -> None:
        """Submits the batches that are ready to the engine. The caller holds ``_handover_lock``."""
        while True:
            with self._lock:
                if not self._ready and (include_current or self._current_due()):
                    self._close_current()
                if not self._ready:
                    return
                one = self._ready.popleft()
            try:
                batch, row_partitions = one.encode(self._keyless)
                sub_batch = SubBatch(
                    batch,
                    one.delivery_state,
                    None,
                    one.nbytes,
                    one.created_at,
                    schema_version=one.encoder.version,
                    large_value=one.large_value,
                )
                self._engine.submit(sub_batch, row_partitions)
            except Exception as error:
                self._engine.fail_batch(one.delivery_state, one.nbytes, error)

    def _current_due(self) -> bool:
        current = self._current
        return current is not None and (self._closed or self._remaining_wait(current) <= 0)

    def _remaining_wait(self, current: BatchBuilder) -> float:
        """How many more seconds this batch should wait. The caller holds the lock."""
        age = time.monotonic() - current.created_at
        if age < self._linger:
            return self._linger - age
        if age >= MAX_BATCH_DELAY_SECONDS or current.nbytes > SMALL_BATCH_BYTES:
            return 0.0
        self._waiting_for_outcome = True  # set before the check, so that no outcome is missed
        self._drop_resolved()
        self._waiting_for_outcome = len(self._delivery_states) > self._max_unacked_batches
        return MAX_BATCH_DELAY_SECONDS - age if self._waiting_for_outcome else 0.0

    def _on_resolved(self) -> None:
        if self._waiting_for_outcome:
            with self._lock:
                self._due.notify()

    def _drop_resolved(self) -> None:
        """Drops the oldest batches that have their outcome; keeps the first error. The caller holds the lock."""
        while self._delivery_states and self._delivery_states[0].left == 0:
            delivery_state = self._delivery_states.popleft()
            self._error = self._error or delivery_state.first_error()

    def would_block(self, value: object = None, key: object = None, headers: object = None) -> bool:
        """Whether ``send`` would block now, because ``max_in_flight`` bytes have no outcome yet.

        It may also block for a message with a large value, which has to fit as a whole. ``headers`` may be read only
        once, so they count as large.
        """
        if isinstance(value, (bytes, bytearray, memoryview)) and len(value) >= MIN_INLINE_BYTES:
            key_size = len(key) if isinstance(key, (bytes, bytearray, memoryview)) else 0
            if headers is not None or len(value) + key_size + ROW_OVERHEAD_BYTES > self._max_inline_bytes:
                return True
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
