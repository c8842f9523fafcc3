"""Builds batches from single messages: checks them and collects them in plain lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat

from smq.producing.batching.row_batch import RowBatch
from smq.producing.delivery_state import DeliveryState
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.keys import KeylessPartitioner, partitions_of_keys
from smq.producing.uploads.large_values import PendingLargeValue
from smq_core.errors import InvalidRequest
from smq_storage.conversion.exact_cast import InexactValue
from smq_storage.uploads.large_values import HEADER, reserved_header

# Roughly what a message takes beside its key and value.
ROW_OVERHEAD_BYTES = 32


class BatchBuilder:
    """Messages that will share a batch, all checked by ``encoder``. Only one thread at a time may write."""

    __slots__ = (
        "created_at",
        "delivery_state",
        "due_at",
        "encoder",
        "headers",
        "keys",
        "large_value",
        "nbytes",
        "times",
        "timestamps",
        "values",
    )

    def __init__(self, encoder: BatchEncoder, delivery_state: DeliveryState, created_at: float) -> None:
        self.encoder = encoder
        self.delivery_state = delivery_state
        self.created_at = created_at
        self.due_at = created_at
        """Until when it may wait for further messages, in monotonic seconds."""
        self.values: list[object] = []
        """The values of the messages. With a schema these are their columns, one row after the other: a tuple for each
        row, which lives as long as its batch, would let Python's garbage collector look at all of them again."""
        self.keys: list[bytes | None] = []
        """Those of the first messages; the others have none."""
        self.times: list[int] = []
        """When each message was sent, in nanoseconds since 1970. The other lists may be shorter or longer."""
        self.timestamps: dict[int, int] = {}
        """The timestamps that the program has given, in microseconds since 1970, by row."""
        self.headers: dict[int, list[tuple[str, bytes | None]]] = {}
        self.nbytes = 0
        self.large_value: PendingLargeValue | None = None
        """The only message's value, if it is uploaded; the message itself has none then."""

    def __len__(self) -> int:
        return len(self.times)

    def add(self, value: object, key: bytes | None, now: int) -> None:
        """Adds a message that was sent at ``now``, in nanoseconds since 1970."""
        if self.encoder.typed:
            self.values.extend(value)  # type: ignore[arg-type]
        else:
            self.values.append(value)
        if key is not None:
            self.pad_keys()
            self.keys.append(key)
        self.times.append(now)

    def add_some(self, values: Sequence[object], keys: Sequence[bytes | None], now: int) -> None:
        """Adds messages that were sent at ``now``."""
        self.values += chain.from_iterable(values) if self.encoder.typed else values  # type: ignore[arg-type]
        if keys.count(None) < len(keys):
            self.pad_keys()
            self.keys += keys
        self.times += repeat(now, len(values))

    def pad_keys(self) -> None:
        """Lets the next key be that of the next message."""
        self.keys += repeat(None, len(self.times) - len(self.keys))

    def to_rows(self, keyless: KeylessPartitioner) -> RowBatch:
        """The messages, with their partitions. Nothing may be added afterwards. Raises InvalidRequest."""
        encoder, rows = self.encoder, len(self)
        if self.keys:
            self.pad_keys()
        if len(self.values) != rows * encoder.row_width or (self.keys and len(self.keys) != rows):
            raise InvalidRequest(
                "a signal interrupted send() while it added a message, so it is unknown which value belongs to which "
                "message of its batch. None of them was sent: send them again"
            )
        keys = encoder.keys_of(self.values) if encoder.typed else self.keys
        row_partitions = partitions_of_keys(keys, rows, encoder.topic.spec.ring, keyless)
        return RowBatch(
            encoder=encoder,
            values=self.values,
            keys=self.keys,
            times=self.times,
            timestamps=self.timestamps,
            headers=self.headers,
            partitions=row_partitions,
        )


def check_value(value: object, encoder: BatchEncoder, row: int | None = None) -> tuple[object, int]:
    """Returns the value as the batch will hold it, and its size in bytes.

    ``row`` is its number among those that are sent together. Raises InvalidRequest, SchemaMismatch.
    """
    if encoder.typed:
        try:
            return encoder.rows.convert(value)
        except InexactValue as problem:
            raise encoder.mismatch(problem.located(row)) from None
    if value is None:
        return None, 0
    if isinstance(value, (bytes, bytearray, memoryview)):
        plain = bytes(value)
        return plain, len(plain)
    raise InvalidRequest(f"a value must be bytes, not {type(value).__name__}; encode text with text.encode()")


def check_key(key: object, encoder: BatchEncoder) -> bytes | None:
    """Raises InvalidRequest."""
    if key is None:
        return None
    if encoder.typed:
        raise InvalidRequest("on a topic with a schema the key is a column of the value; leave key out")
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    raise InvalidRequest(f"a key must be bytes, not {type(key).__name__}; encode text with text.encode()")


def check_headers(headers: object) -> list[tuple[str, bytes | None]]:
    """Raises InvalidRequest."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)  # type: ignore[call-overload]
    for pair in pairs:
        if (
            not isinstance(pair, tuple)
            or len(pair) != 2
            or not isinstance(pair[0], str)
            or not isinstance(pair[1], (bytes, type(None)))
        ):
            raise InvalidRequest(f"headers must be pairs of str and bytes, not {pair!r}")
        try:
            pair[0].encode()
        except UnicodeEncodeError:
            raise InvalidRequest(f"the name of a header must be valid Unicode, not {pair[0]!r}") from None
    if reserved_header(pairs):
        raise InvalidRequest(f"the header {HEADER!r} is reserved for large values; give this header another name")
    return pairs
