"""Messages that a program sends by one call: their checks, and their delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from smq.delivery import TableReceipt
from smq.producing.batching.batch_builder import ROW_OVERHEAD_BYTES, check_key, check_value
from smq.producing.delivery_state import BatchesDelivery, DeliveryState, table_receipt
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq_core.errors import InvalidRequest, SmqError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Checked messages. ``sizes`` are bytes as a batch counts them, ``ends`` their sums, int64 of shape (messages,)."""

    values: list[object]
    keys: list[bytes | None]
    sizes: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, values: Sequence[object], keys: Sequence[bytes | None] | None, encoder: BatchEncoder) -> MessageGroup:
        """Checks all of them. Raises InvalidRequest, SchemaMismatch with a note that says which message is wrong."""
        if isinstance(values, (bytes, bytearray, memoryview, str)):
            raise InvalidRequest(f"values must be a sequence of values, not {type(values).__name__}; use send for one")
        if keys is not None and len(keys) != len(values):
            raise InvalidRequest(
                f"there are {len(values)} values, but {len(keys)} keys; a message without key has None"
            )
        checked, sizes = _check_values(values, encoder)
        checked_keys, key_sizes = _check_keys(keys, len(checked), encoder)
        sizes += key_sizes + ROW_OVERHEAD_BYTES
        return cls(checked, checked_keys, sizes, np.cumsum(sizes))

    def __len__(self) -> int:
        return len(self.values)

    def end_of_batch(self, start: int, capacity: int, largest: int) -> int:
        """Where a batch ends that begins with message ``start``: with the message that fills ``capacity`` bytes.

        At least one message later, and before the next one that is larger than ``largest``.
        """
        before = int(self.ends[start - 1]) if start else 0
        filled = min(int(np.searchsorted(self.ends, before + capacity)) + 1, len(self))
        large = np.flatnonzero(self.sizes[start:filled] > largest)
        return start + max(1, int(large[0])) if len(large) else filled

    def bytes_between(self, start: int, stop: int) -> int:
        """The size of the messages ``start .. stop - 1``. At least one."""
        return int(self.ends[stop - 1] - self.ends[start] + self.sizes[start])


def _check_values(values: Sequence[object], encoder: BatchEncoder) -> tuple[list[object], npt.NDArray[np.int64]]:
    if not encoder.typed and set(map(type, values)) == {bytes}:
        sizes = np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
        return list(values), sizes
    pairs = _check_each(values, lambda value, row: check_value(value, encoder, row))
    return [value for value, _ in pairs], np.array([size for _, size in pairs], np.int64)


def _check_keys(
    keys: Sequence[bytes | None] | None, count: int, encoder: BatchEncoder
) -> tuple[list[bytes | None], npt.NDArray[np.int64]]:
    if keys is None:
        return list(repeat(None, count)), np.zeros(count, np.int64)
    checked = _check_each(keys, lambda key, _: check_key(key, encoder))
    return checked, np.fromiter((len(key or b"") for key in checked), np.int64, count)


def _check_each(items: Sequence[object], check: Callable[[object, int], T]) -> list[T]:
    checked = []
    for number, item in enumerate(items):
        try:
            checked.append(check(item, number))
        except SmqError as error:
            error.add_note(f"This is message {number} of {len(items)}, counted from 0. None of them was sent.")
            raise
    return checked


class MessageSpan(NamedTuple):
    """The rows ``start .. stop - 1`` of a batch, which may have other messages, too."""

    state: DeliveryState
    start: int
    stop: int


class MessageGroupDelivery(BatchesDelivery[TableReceipt]):
    """The delivery of messages that are in these spans, in this order."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Sequence[MessageSpan]) -> None:
        super().__init__(list(dict.fromkeys(span.state for span in spans)))
        self._spans = spans

    def _receipt(self) -> TableReceipt:
        tables = ((span, span.state.table()) for span in self._spans)
        return table_receipt((s, i[span.start : span.stop], o[span.start : span.stop]) for span, (s, i, o) in tables)

    def _known_error(self) -> BaseException | None:
        errors = (span.state.first_error_between(span.start, span.stop) for span in self._spans)
        return next((error for error in errors if error is not None), None)

    def _mark_raised(self) -> None:
        for span in self._spans:
            span.state.mark_raised(span.start, span.stop)
