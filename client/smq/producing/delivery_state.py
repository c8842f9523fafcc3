"""The delivery state of a batch, and the deliveries that point into it.

A future for each message would cost more than the message itself. A ``Delivery`` therefore holds only the state of its
batch and its row in that batch. The state is resolved sub-batch by sub-batch, as the segments ack them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from smq.delivery import Delivery, Receipt, TableReceipt
from smq.producing.callbacks import Callbacks, refuse_to_wait
from smq_core.errors import DeliveryTimeout, SmqError
from smq_storage.process.locks import requires_lock

log = logging.getLogger(__name__)

# Makes a Receipt without the generated constructor, which takes three times as long. Each message has a Receipt.
_tuple = tuple.__new__

R = TypeVar("R")
# The indices of rows in a batch, or None for all rows.
RowIndices = npt.NDArray[np.int64] | None

# The row count of a batch that still grows.
OPEN_ROW_COUNT = 1 << 62

_PENDING = -1
_UNKNOWN_OFFSET = -2
_FAILED = -3


class DeliveryState:
    """The outcome of each row of one batch, resolved sub-batch by sub-batch. Many states share one ``lock``."""

    __slots__ = (
        "_callbacks",
        "_errors",
        "_indices",
        "_offsets",
        "_raised",
        "_segments",
        "_wake",
        "first",
        "left",
        "lock",
        "rows",
        "whole",
    )

    def __init__(self, rows: int, lock: threading.Lock) -> None:
        self.rows = rows
        self.left = rows
        self.lock = lock
        self.first = _PENDING
        """The offset of the first row if the offsets of all rows are consecutive."""
        self.whole: str | None = None
        """The segment that has all rows at known offsets from ``first``; None if that is not so."""
        self._segments: list[str] = []
        self._offsets: npt.NDArray[np.int64] | None = None
        self._indices: npt.NDArray[np.int32] | None = None
        self._errors: list[BaseException] = []
        self._raised: npt.NDArray[np.bool_] | None = None
        """The rows whose error the program has got; None if there are none."""
        self._wake: threading.Condition | None = None
        self._callbacks: list[tuple[int, Callable[[], None]]] | None = None

    def set_row_count(self, rows: int) -> None:
        """Sets the number of rows once the batch has stopped growing."""
        self.rows = self.left = rows

    # ---- for the engine, which holds ``lock`` and calls the returned callbacks after it has released the lock

    @requires_lock("lock")
    def delivered(self, rows: RowIndices, segment: str, first: int | None) -> Callbacks:
        """Marks these rows durable at consecutive offsets from ``first``, or at unknown offsets if that is None."""
        if rows is None and self._offsets is None:
            self._segments, self.first = [segment], first if first is not None else _UNKNOWN_OFFSET
            self.whole = segment if first is not None else None
            self.left = 0  # last, because it is read without the lock
            return self._due_callbacks()
        if rows is None:
            rows = np.arange(self.rows)
        offsets = self._offsets_from(first, rows) if first is not None else _UNKNOWN_OFFSET
        if segment not in self._segments:
            self._segments.append(segment)
        return self._set(rows, self._segments.index(segment), offsets)

    def _offsets_from(self, first: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The offsets of these rows, if the first of them is at ``first``."""
        return np.arange(first, first + len(rows))

    @requires_lock("lock")
    def failed(self, rows: RowIndices, error: BaseException) -> Callbacks:
        """Marks these rows failed, except those that are resolved already."""
        self._arrays()
        assert self._offsets is not None
        chosen = np.arange(self.rows) if rows is None else rows
        chosen = chosen[self._offsets[chosen] == _PENDING]
        if not len(chosen):
            return []
        self._errors.append(error)
        return self._set(chosen, len(self._errors) - 1, _FAILED)

    def end_in_fork(self, error: BaseException) -> None:
        """Marks all rows failed that are not resolved, in a fork. Its callbacks are for the parent."""
        with self.lock:
            self.failed(None, error)  # the callbacks are not called
        self.left = 0  # also if a thread was about to set it

    def _arrays(self) -> None:
        if self._offsets is None:
            self._offsets = np.full(self.rows, _PENDING, np.int64)
            self._indices = np.zeros(self.rows, np.int32)
            if self.first != _PENDING:
                self._offsets[:] = self.first + np.arange(self.rows) if self.first >= 0 else self.first

    def _set(self, rows: npt.NDArray[np.int64], index: int, offsets: npt.NDArray[np.int64] | int) -> Callbacks:
        self._arrays()
        assert self._offsets is not None and self._indices is not None
        # A row that has timed out stays failed, because the program may have seen the error.
        waiting = self._offsets[rows] == _PENDING
        if not waiting.all():
            rows = rows[waiting]
            offsets = offsets[waiting] if isinstance(offsets, np.ndarray) else offsets
        self._offsets[rows] = offsets
        self._indices[rows] = index
        self.left -= len(rows)
        return self._due_callbacks()

    def _due_callbacks(self) -> Callbacks:
        if self._wake is not None:
            self._wake.notify_all()
        if self._callbacks is None:
            return []
        if self.left == 0:
            due, self._callbacks = [call for _, call in self._callbacks], None
            return due
        due = [call for row, call in self._callbacks if self.is_resolved(row)]
        self._callbacks = [(row, call) for row, call in self._callbacks if not self.is_resolved(row)] or None
        return due

    # ---- for deliveries

    def is_resolved(self, row: int) -> bool:
        """Whether the outcome of this row (of all rows if -1) is known."""
        if self.left == 0:
            return True
        return row >= 0 and self._offsets is not None and bool(self._offsets[row] != _PENDING)

    def wait(self, row: int, timeout: float | None) -> None:
        """Blocks until the row is resolved. Raises TimeoutError, and InvalidRequest in a callback."""
        if self.is_resolved(row):
            return
        if timeout != 0:
            refuse_to_wait()
        with self.lock:
            if self._wake is None:
                self._wake = threading.Condition(self.lock)
            if not self._wake.wait_for(lambda: self.is_resolved(row), timeout):
                raise TimeoutError(f"not durable after {timeout} s; the delivery continues")

    def when_resolved(self, row: int, call: Callable[[], None]) -> None:
        """Calls ``call`` in a thread of the producer when the row is resolved, or at once."""
        with self.lock:
            if not self.is_resolved(row):
                self._callbacks = self._callbacks or []
                self._callbacks.append((row, call))
                return
        call()

    def error(self, row: int) -> BaseException | None:
        if self._offsets is None or self._offsets[row] != _FAILED:
            return None
        assert self._indices is not None
        return self._errors[self._indices[row]]

    def known_receipt(self, row: int) -> Receipt | None:
        """The receipt of a row in a batch of which all rows are resolved; None if it has failed, or has no offset."""
        if self._offsets is None or self._indices is None:
            return None
        offset = self._offsets.item(row)  # an index would make a number of numpy first
        return None if offset < 0 else _tuple(Receipt, (self._segments[self._indices.item(row)], offset))

    def receipt(self, row: int) -> Receipt:
        if self._offsets is None:
            return Receipt(self._segments[0], self.first + row if self.first >= 0 else None)
        assert self._indices is not None
        offset = int(self._offsets[row])
        return Receipt(self._segments[self._indices[row]], offset if offset >= 0 else None)

    def table(self) -> tuple[list[str], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        with self.lock:
            self._arrays()
        assert self._offsets is not None and self._indices is not None
        return self._segments, self._indices, self._offsets

    def first_error(self) -> BaseException | None:
        return self._errors[0] if self._errors else None

    def failures_not_raised(self) -> int:
        """How many rows have failed, of those whose error the program has not got from its delivery."""
        if self._offsets is None:
            return 0
        failed = self._offsets == _FAILED
        return int(np.count_nonzero(failed if self._raised is None else failed & ~self._raised))

    def mark_raised(self, start: int, stop: int) -> None:
        """The program has got the errors of the rows ``start .. stop - 1``."""
        with self.lock:
            if self._raised is None:
                self._raised = np.zeros(self.rows, bool)
            self._raised[start:stop] = True

    def first_error_that_was_not_raised(self) -> BaseException | None:
        """The error of a row whose error the program has not got from its delivery."""
        if self._raised is None or not self._errors:
            return self.first_error()
        assert self._offsets is not None and self._indices is not None
        unraised = np.flatnonzero((self._offsets == _FAILED) & ~self._raised)
        return self._errors[self._indices[unraised[0]]] if len(unraised) else None

    def first_error_between(self, start: int, stop: int) -> BaseException | None:
        """The error of the first of the rows ``start .. stop - 1`` that has failed."""
        if self._offsets is None or self._indices is None:
            return None
        failed = np.flatnonzero(self._offsets[start:stop] == _FAILED)
        return self._errors[self._indices[start + failed[0]]] if len(failed) else None


class MessageDelivery(Delivery[Receipt]):
    """The delivery of one message. Each message has one, so whoever makes it sets ``state`` and ``row``: a call of
    ``__init__`` would take twice as long."""

    __slots__ = ("row", "state")

    state: DeliveryState
    row: int

    def result(self, timeout: float | None = None) -> Receipt:
        state = self.state
        segment = state.whole
        if segment is not None:  # if no key has split the batch; the general case takes several times as long
            return _tuple(Receipt, (segment, state.first + self.row))
        row = self.row
        if state.left == 0 and (receipt := state.known_receipt(row)) is not None:
            return receipt
        state.wait(row, timeout)
        error = state.error(row)
        if error is not None:
            state.mark_raised(row, row + 1)
            raise error
        return state.receipt(row)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.state.wait(self.row, timeout)
        error = self._known_error()
        if error is not None:
            self.state.mark_raised(self.row, self.row + 1)
        return error

    def _known_error(self) -> BaseException | None:
        return self.state.error(self.row)

    def done(self) -> bool:
        return self.state.is_resolved(self.row)

    def add_done_callback(self, callback: Callable[[Delivery[Receipt]], object]) -> None:
        self.state.when_resolved(self.row, lambda: _run(callback, self))


def message_delivery(state: DeliveryState, row: int) -> MessageDelivery:
    """The delivery of the message in that row."""
    delivery = MessageDelivery()
    delivery.state = state
    delivery.row = row
    return delivery


class BatchesDelivery(Delivery[R]):
    """The delivery of what was sent as any number of batches."""

    __slots__ = ("_states",)

    def __init__(self, states: Sequence[DeliveryState]) -> None:
        self._states = states

    def result(self, timeout: float | None = None) -> R:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._receipt()

    def _receipt(self) -> R:
        raise NotImplementedError

    def exception(self, timeout: float | None = None) -> BaseException | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        for state in self._states:
            state.wait(-1, None if deadline is None else max(0.0, deadline - time.monotonic()))
        error = self._known_error()
        if error is not None:
            self._mark_raised()
        return error

    def _known_error(self) -> BaseException | None:
        return next((e for state in self._states if (e := state.first_error()) is not None), None)

    def _mark_raised(self) -> None:
        for state in self._states:
            state.mark_raised(0, state.rows)

    def done(self) -> bool:
        return all(state.is_resolved(-1) for state in self._states)

    def add_done_callback(self, callback: Callable[[Delivery[R]], object]) -> None:
        """As Delivery says, when all batches are resolved."""
        waiting = iter(self._states)

        def wait_for_next() -> None:
            for state in waiting:
                if not state.is_resolved(-1):
                    state.when_resolved(-1, wait_for_next)
                    return
            _run(callback, self)

        wait_for_next()


class TableDelivery(BatchesDelivery[TableReceipt]):
    """The delivery of a table."""

    __slots__ = ()

    def _receipt(self) -> TableReceipt:
        return table_receipt(state.table() for state in self._states)


def table_receipt(
    parts: Iterable[tuple[list[str], npt.NDArray[np.int32], npt.NDArray[np.int64]]],
) -> TableReceipt:
    """The receipt of rows in several batches. Each part has its segments, and index and offset of its rows."""
    names: dict[str, int] = {}
    indices, offsets = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for segments, index, offset in parts:
        numbers = np.array([names.setdefault(s, len(names)) for s in segments], np.int32)
        indices.append(numbers[index] if len(numbers) else index)
        offsets.append(offset)
    return TableReceipt(tuple(names), np.concatenate(indices), np.concatenate(offsets))


def delivery_timeout(timeout: float, cause: SmqError | None = None) -> DeliveryTimeout:
    """``cause`` is why the last stream to the segment's broker ended, if it did."""
    advice = (
        "`smq broker list` shows whether the leader and the brokers are up"
        if cause is None
        else f"The last attempt failed: {cause.message}"
    )
    return DeliveryTimeout(
        f"no broker confirmed the messages within {timeout} s. They may or may not be in the log. {advice}"
    )


def _run(callback: Callable[[Delivery[R]], object], delivery: Delivery[R]) -> None:
    try:
        callback(delivery)
    except Exception:
        log.exception("a delivery callback failed")
