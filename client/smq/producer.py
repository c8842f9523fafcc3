"""The producer: send messages, write tables, flush, close."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, TypeGuard, overload

import numpy as np
import pyarrow as pa

from smq.closing import close_all
from smq.delivery import Delivery, FilesReceipt, Receipt, TableReceipt
from smq.forks import track
from smq.producing.batching.batch_builder import (
    ROW_OVERHEAD_BYTES,
    BatchBuilder,
    check_headers,
    check_key,
    check_value,
)
from smq.producing.batching.message_group import MessageGroup, MessageGroupDelivery, MessageSpan
from smq.producing.batching.partitioning import SubBatch
from smq.producing.delivery_state import DeliveryState, TableDelivery, message_delivery
from smq.producing.encoding.batch_encoder import BatchEncoder, message_too_large, split_rows, split_to_limit
from smq.producing.encoding.frames import ArrowArray, ArrowStream, TableLike, is_table_like
from smq.producing.encoding.keys import KeylessPartitioner
from smq.producing.engine import ProducerEngine
from smq.producing.message_batcher import MessageBatcher, RowPartitions
from smq.producing.producer_claims import claim_id
from smq.producing.uploads.large_values import LargeValueUploader
from smq.producing.uploads.reference_publisher import ReferencePublisher, goes_by_reference
from smq.producing.uploads.upload_delivery import UploadDeliveryState
from smq.producing.uploads.upload_targets import open_value_store
from smq.producing.uploads.uploaded_rows import UploadedFile, UploadedRows
from smq.transport.schema_versions import SchemaVersions
from smq_core.access.producer_ids import id_of
from smq_core.errors import InvalidRequest, PartlySent, SmqError
from smq_storage.conversion.time_conversion import check_timestamp
from smq_storage.process.locks import make_lock

if TYPE_CHECKING:
    from smq.producing.producer_runtime import ProducerRuntime
    from smq.transport.topic_view import TopicSnapshot, TopicView

CLAIM_TIMEOUT_SECONDS = 30.0
# The part of a broker's batch limit that is kept for what the columns need beside a message's own bytes.
BATCH_OVERHEAD_BYTES = 64 << 10

MIN_INLINE_BYTES = 64 << 10
# A value is one PUT, and whoever reads it has all of it in memory.
MAX_LARGE_VALUE_BYTES = 1 << 30

# What the references to an upload count of ``max_in_flight``, because none of its rows stay in memory.
REFERENCE_COST_BYTES = 1024

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
        runtime: ProducerRuntime,
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
            full_id, epoch = claim_id(view, producer_id, instance, epoch, CLAIM_TIMEOUT_SECONDS)
        else:
            producer_id = uuid.uuid4().hex
            full_id = id_of(producer_id, view.dialer.identity())
        self._view = view
        self._encoder_lock = make_lock()
        self._encoder = BatchEncoder(view.snapshot.topic, SchemaVersions(view.snapshot).newest)
        self._batch_bytes = batch_bytes
        self._timeout = timeout
        self.producer_id = producer_id
        self.epoch = epoch or 0
        self._keyless = KeylessPartitioner(view.snapshot.topic.spec.partitions, random.randrange(1 << 30))
        self._untyped = not self._encoder.typed
        self._batcher = MessageBatcher(
            topic=view.name,
            keyless=self._keyless,
            linger=linger,
            batch_bytes=batch_bytes,
            timeout=timeout,
            make_engine=lambda on_resolved: ProducerEngine(
                view,
                producer_id=full_id,
                epoch=self.epoch,
                instance=instance,
                timeout=timeout,
                max_in_flight=max_in_flight,
                on_resolved=on_resolved,
                runtime=runtime,
            ),
            timers=runtime.timers,
        )
        self._engine = self._batcher.engine
        self._references = ReferencePublisher(
            view=view,
            producer=self.producer_id,
            epoch=self.epoch,
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
            topic_uid=view.snapshot.topic.uid,
            producer=self.producer_id,
            epoch=self.epoch,
            timeout=timeout,
            open_store=lambda: open_value_store(view, self.producer_id, self.epoch, timeout),
            on_done=self._engine.large_value_done,
            has_failed=lambda: self._engine.failure is not None,
        )
        view.add_listener(self._on_layout_changed)
        track(self, self._batcher)

    def __repr__(self) -> str:
        named = f", id {self.producer_id!r}, epoch {self.epoch}" if self.epoch else ""
        return f"<Producer of {self._view.name}{named}{', closed' if self._batcher.closed else ''}>"

    @overload
    def send(
        self,
        value: bytes | Mapping[str, object] | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
    ) -> Delivery[Receipt]: ...

    @overload
    def send(self, value: ArrowStream | ArrowArray, key: str | None = None) -> Delivery[TableReceipt]: ...

    def send(
        self, value: Any, key: Any = None, headers: Headers | None = None, timestamp: int | datetime | None = None
    ) -> Delivery[Any]:
        """Sends one message and returns its delivery. Blocks while ``max_in_flight`` bytes have no outcome yet.

        value: bytes, or on a topic with a schema a mapping of its columns. A value that a column cannot hold exactly
            as it is gets SchemaMismatch (:mod:`smq_storage.conversion.exact_cast` has the rules). When the topic's
            schema changes, later messages may use the new columns; a column that is left out gets null.
        key: bytes. Messages of one key keep their order, messages without a key are spread over the segments. On a
            topic with a schema the key is a column of the value.
        headers: pairs of str and bytes.
        timestamp: microseconds since 1970 or a datetime (naive means UTC); None means now.

        A pyarrow table, or a frame of pandas or Polars, as ``value`` is sent as by :meth:`write`.

        On a topic without a schema, the value of a message above ``max_inline_bytes`` is uploaded to the filer as a
        separate object, up to 1 GiB, and the message refers to it. The order of each key is the same. If the upload
        fails, so does the delivery, with StoreUnavailable (StoreDenied if the filer refuses the credentials), and the
        producer goes on.

        Raises InvalidRequest, SchemaMismatch, MessageTooLarge, Overloaded (blocked longer than the producer's timeout),
        ProducerFenced.
        """
        # Nearly all messages are plain ones. For these a further call would cost as much as a check.
        if headers is None and timestamp is None:
            if self._untyped:
                if type(value) is bytes and (key is None or type(key) is bytes):
                    size = ROW_OVERHEAD_BYTES + len(value) + (0 if key is None else len(key))
                    if size <= self._max_inline_bytes:
                        return self._batcher.append(self._encoder, value, key, size)
            elif type(value) is dict and key is None:
                encoder = self._encoder
                row, size = check_value(value, encoder)
                size += ROW_OVERHEAD_BYTES
                if size <= self._max_inline_bytes:
                    return self._batcher.append(encoder, row, None, size)
                raise message_too_large(size, self._max_message_bytes)
        return self._send_checked(value, key, headers, timestamp)

    def send_many(
        self, values: Sequence[bytes | Mapping[str, object] | None], keys: Sequence[bytes | None] | None = None
    ) -> Delivery[TableReceipt]:
        """Sends messages in this order, which costs much less than ``send`` for each; the receipt covers all of them.

        ``values[i]`` and ``keys[i]`` are as in ``send``; the time of all is now. Blocks until there is capacity for all
        of them. All are checked before the first is sent. Raises what ``send`` does, and then nothing was sent.

        More than half of ``max_in_flight`` bytes are sent bit by bit. If not all of them can be sent, raises
        PartlySent, with the delivery of the first ones.
        """
        encoder = self._encoder
        group = MessageGroup.of(values, keys, encoder)
        for number in np.flatnonzero(group.sizes > self._max_inline_bytes):
            self._check_size(group.values[number], int(group.sizes[number]))
        if not len(group):
            return MessageGroupDelivery([])
        reserved = int(group.ends[-1]) if group.ends[-1] <= self._engine.max_undivided_bytes else 0
        self._engine.reserve(reserved, self._timeout)
        try:
            return self._append_group(encoder, group, reserved=bool(reserved))
        finally:
            self._engine.release(reserved)  # batches have counted the same bytes

    def _append_group(self, encoder: BatchEncoder, group: MessageGroup, *, reserved: bool) -> MessageGroupDelivery:
        now = time.time_ns()
        spans: list[MessageSpan] = []
        at = 0
        while at < len(group):
            try:
                spans.append(self._append_next(encoder, group, at, now, reserved))
            except SmqError as error:
                if not spans:
                    raise
                raise _partly_sent(MessageGroupDelivery(spans), at, len(group), error) from error
            at += spans[-1].stop - spans[-1].start
        return MessageGroupDelivery(spans)

    def _append_next(
        self, encoder: BatchEncoder, group: MessageGroup, at: int, now: int, reserved: bool
    ) -> MessageSpan:
        value, size = group.values[at], int(group.sizes[at])
        if size > self._max_inline_bytes and self._is_large(value):
            if reserved:
                self._engine.reserve_now(size)
            else:
                self._engine.reserve(size, self._timeout)
            return MessageSpan(self._append_large(encoder, value, group.keys[at], None, None, size), 0, 1)
        return self._batcher.append_some(encoder, group, at, now, self._max_inline_bytes, reserved=reserved)

    def _send_checked(self, value: object, key: Any, headers: object, timestamp: object) -> Delivery[Any]:
        if type(value) is not dict and is_table_like(value):
            if headers is not None or timestamp is not None:
                raise InvalidRequest("headers and timestamp of a table's rows are columns of these names")
            return self.write(value, key)
        encoder = self._encoder
        plain_value, size = check_value(value, encoder)
        plain_key = check_key(key, encoder)
        pairs = check_headers(headers) if headers is not None else None
        micros = check_timestamp(timestamp) if timestamp is not None else None
        size += ROW_OVERHEAD_BYTES + len(plain_key or b"")
        size += sum(len(k) + len(v or b"") for k, v in pairs) if pairs else 0
        if size > self._max_inline_bytes:
            self._check_size(plain_value, size)
            if self._is_large(plain_value):
                self._engine.reserve(size, self._timeout)
                return message_delivery(self._append_large(encoder, plain_value, plain_key, pairs, micros, size), 0)
        return self._batcher.append(encoder, plain_value, plain_key, size, pairs, micros)

    def _is_large(self, value: object) -> TypeGuard[bytes]:
        """Whether this value is uploaded if its message is larger than ``max_inline_bytes``."""
        return self._untyped and isinstance(value, bytes) and len(value) >= MIN_INLINE_BYTES

    def _check_size(self, value: object, size: int) -> None:
        """Raises MessageTooLarge. ``size`` is that of the message, which is larger than ``max_inline_bytes``."""
        limits = [(size, self._max_message_bytes)]
        if self._is_large(value):
            limits = [(size - len(value), self._max_message_bytes), (len(value), MAX_LARGE_VALUE_BYTES)]
        for nbytes, limit in limits:
            if nbytes > limit:
                raise message_too_large(nbytes, limit)

    def _append_large(
        self,
        encoder: BatchEncoder,
        value: bytes,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        timestamp: int | None,
        size: int,
    ) -> DeliveryState:
        """Sends a message whose value is uploaded, and whose bytes are reserved.

        It is a separate batch, so that the ones before do not wait.
        """
        one = BatchBuilder(encoder, DeliveryState(1, self._engine.lock), time.monotonic())
        pending = one.large_value = self._large_values.prepare(value)
        one.add(None, key, time.time_ns())
        if timestamp is not None:
            one.timestamps[0] = timestamp
        one.headers[0] = [*(headers or ()), pending.value.header()]
        one.nbytes = size
        if not self._batcher.append_batch(one):
            error = InvalidRequest("the producer is closed")
            self._engine.fail_batch(one.delivery_state, size, error)
            raise error
        self._large_values.start(pending, value, one.created_at)
        return one.delivery_state

    def write(
        self,
        table: TableLike,
        key: str | pa.Array | pa.ChunkedArray | None = None,
        *,
        by_reference: bool | Literal["auto"] = False,
    ) -> Delivery[TableReceipt]:
        """Sends a whole table, the fastest way to publish; its receipt covers all rows.

        Blocks until there is capacity for all of it. A table with more than half of ``max_in_flight`` bytes is sent bit
        by bit. If not all of it can be sent, raises PartlySent, with the delivery of its first rows.

        The table is a pyarrow Table or RecordBatch, a frame of pandas or Polars, or any object with the Arrow PyCapsule
        interface (``__arrow_c_stream__`` or ``__arrow_c_array__``). In columns of floats pandas has NaN for null; they
        are null here. The index of its frame is a column if it has a name, and is left out otherwise.

        A topic without a schema has the columns ``key``, ``value``, ``headers`` and ``timestamp``; a topic with a
        schema has its own columns, ``headers`` and ``timestamp``. Columns that may be missing are filled, a missing
        timestamp with the present time. Columns of another type are cast if that changes no value, by the same rules
        as in ``send``; the error names the column, the row and the value.

        ``key`` names the column that is hashed, by default the topic's key column or ``key``. Without a schema it may
        also be an array. Binary and string columns are hashed by their bytes, others by the bytes that
        :mod:`smq.producing.encoding.keys` defines. Rows without a key go to one partition per batch, in turn.

        With ``by_reference`` the rows go to the filer as Parquet files, and the brokers get references to these, which
        costs them nearly nothing. This returns when all files are uploaded; then they are published. The order among
        this producer's messages is the same. ``auto`` does so for large tables. docs/large-data.md says when it pays.

        Raises SchemaMismatch (``expected`` is the schema), InvalidRequest (no such key column), MessageTooLarge,
        Overloaded, ProducerFenced, by reference also StoreUnavailable, and then nothing was sent. The delivery of a
        reference that a broker does not accept fails with ReferenceRejected, and the producer goes on.
        """
        if self._batcher.closed:
            raise InvalidRequest("the producer is closed")
        encoder = self._encoder
        rows = encoder.to_table(table)
        if goes_by_reference(rows, by_reference):
            return self._references.publish_table(rows, key)
        converted, key_column = encoder.check(rows, key)
        limit = self._engine.max_batch_bytes - BATCH_OVERHEAD_BYTES
        encoder.check_sizes(converted, limit)
        large_parts = split_rows(converted, self._batch_bytes)
        parts = [part for large in large_parts for part in split_to_limit(large, limit)]
        # Capacity for the whole table is reserved at once if it can be: then all of it is sent, or nothing.
        fits = sum(part.nbytes for part in parts) <= self._engine.max_undivided_bytes
        states: list[DeliveryState] = []
        # A table without rows needs no capacity, and waits for none.
        for together in [parts] if fits and parts else [[part] for part in parts]:
            try:
                self._submit_parts(encoder, together, key_column, states)
            except SmqError as error:
                if not states:
                    raise
                sent = sum(state.rows for state in states)
                raise _partly_sent(TableDelivery(states), sent, converted.num_rows, error) from error
        return TableDelivery(states)

    def _submit_parts(
        self, encoder: BatchEncoder, parts: Sequence[pa.RecordBatch], key: str | None, states: list[DeliveryState]
    ) -> None:
        """Adds the states of those that were submitted to ``states``. Raises Overloaded before the first one."""
        reserved = sum(part.nbytes for part in parts)
        self._engine.reserve(reserved, self._timeout)
        for part in parts:
            state = DeliveryState(part.num_rows, self._engine.lock)
            try:
                self._batcher.submit(state, partial(self._encode, encoder, part, key, state))
            except SmqError as error:
                self._engine.fail_batch(state, reserved, error)
                raise
            states.append(state)
            reserved -= part.nbytes

    def _encode(
        self, encoder: BatchEncoder, part: pa.RecordBatch, key: str | None, state: DeliveryState
    ) -> tuple[SubBatch, RowPartitions]:
        now = time.time_ns() // 1000
        batch, row_partitions = encoder.encode(part, key, now, self._keyless)
        sub_batch = SubBatch(
            batch=batch,
            delivery_state=state,
            rows=None,
            cost=part.nbytes,
            created_at=time.monotonic(),
            schema_version=encoder.version,
        )
        return sub_batch, row_partitions

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
        if self._batcher.closed:
            raise InvalidRequest("the producer is closed")
        return self._references.publish_files(files, key)

    def _submit_uploads(self, files: Sequence[UploadedFile], states: Sequence[UploadDeliveryState]) -> None:
        """Publishes uploads after all that was handed over before: all of them, or none if it raises an error."""
        self._engine.reserve(REFERENCE_COST_BYTES * len(files), self._timeout)
        for number, (file, state) in enumerate(zip(files, states, strict=True)):
            try:
                self._batcher.submit(state, partial(_rows_of_upload, file, state))
            except SmqError as error:
                for unsubmitted in states[number:]:
                    self._engine.fail_batch(unsubmitted, REFERENCE_COST_BYTES, error)
                if number == 0:
                    raise
                return  # the deliveries say what became of each file

    def flush(self, timeout: float | None = None) -> None:
        """Waits for the outcome of everything sent so far; ``timeout`` in seconds, None means the producer's timeout.

        Raises DeliveryTimeout, or the first error of a message since the last flush, unless the program has got it from
        the message's delivery.
        """
        self._batcher.flush(self._timeout if timeout is None else timeout)

    def close(self) -> None:
        """Flushes, then ends its sessions. Repeatable. Raises the errors of ``flush`` after everything has ended.

        A program that ends without it waits up to ``timeout`` seconds for what it has sent, and logs how many messages
        were not delivered. Raises InvalidRequest in a delivery callback if it would have to wait.
        """
        if not self._batcher.close():
            return
        try:
            # A batch fails a moment after its timeout. Waiting for that gives the error of the message itself.
            self.flush(self._timeout + 1.0)
        finally:
            self._view.remove_listener(self._on_layout_changed)
            self._large_values.close()
            self._engine.close()

    def _on_layout_changed(self, snapshot: TopicSnapshot) -> None:
        """Encodes by the newest schema. The engine gives batches the version of their segments."""
        newest = SchemaVersions(snapshot).newest
        with self._encoder_lock:
            if newest.version > self._encoder.version:
                self._encoder = BatchEncoder(snapshot.topic, newest)

    def would_block(self, value: object = None, key: object = None, headers: object = None) -> bool:
        """Whether ``send`` would block now, because ``max_in_flight`` bytes have no outcome yet.

        It may also block for a message with a large value, which has to fit as a whole. ``headers`` may be read only
        once, so they count as large.
        """
        if isinstance(value, (bytes, bytearray, memoryview)) and len(value) >= MIN_INLINE_BYTES:
            key_size = len(key) if isinstance(key, (bytes, bytearray, memoryview)) else 0
            if headers is not None or len(value) + key_size + ROW_OVERHEAD_BYTES > self._max_inline_bytes:
                return True
        return self._batcher.full

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._batcher.closed

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_all([self], error)


def _rows_of_upload(file: UploadedFile, state: UploadDeliveryState) -> tuple[SubBatch, None]:
    rows = UploadedRows.all_of(file)
    now = time.monotonic()
    return SubBatch(
        batch=rows,
        delivery_state=state,
        rows=state.all_rows(),
        cost=REFERENCE_COST_BYTES,
        created_at=now,
        schema_version=file.schema_version,
    ), None


def _partly_sent(delivery: Delivery[TableReceipt], sent: int, total: int, cause: SmqError) -> PartlySent:
    error = PartlySent(
        f"the first {sent} of {total} messages were sent, and error.delivery is their delivery. Send only the others "
        f"again: {cause.message}",
        sent=sent,
    )
    error.delivery = delivery
    return error
