"""What becomes of messages that were handed to a producer: light futures that point into their batch.

A future for each message would cost more than the message itself. So a Delivery only knows its batch's Fate and its
row there; the fate is resolved piece by piece, as the segments ack them, and asked when somebody wants to know.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from smq_core.errors import DeliveryTimeout

log = logging.getLogger("smq")

_tuple = tuple.__new__
"""Makes a Receipt without the generated constructor: a third of the time, where there is one for each message."""

R = TypeVar("R")
Rows = npt.NDArray[np.int64] | None
"""Rows of a batch: their indices, or None for all of them."""

OPEN_ENDED = 1 << 62
"""The rows of a batch that still grows."""

_WAITING = -1
_UNKNOWN_OFFSET = -2
_FAILED = -3


class Receipt(NamedTuple):
    """A durable message: the segment and its offset there.

    ``offset`` is None in one rare case: the message is in the log for sure, but a failover happened so long after it
    was written that its offset is no longer known.
    """

    segment: str
    offset: int | None


@dataclass(frozen=True, slots=True)
class TableReceipt:
    """All rows of a written table are durable: row i is in ``segments[segment_index[i]]`` at ``offsets[i]``.

    ``segment_index`` is int32, ``offsets`` int64, both of shape (rows,); an offset is -2 when it is no longer known
    (see :class:`Receipt`).
    """

    segments: tuple[str, ...]
    segment_index: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> Receipt:
        """The receipt of one row."""
        offset = int(self.offsets[row])
        return Receipt(self.segments[self.segment_index[row]], offset if offset >= 0 else None)


class Fate:
    """What becomes of the rows of one batch. Resolved piece by piece, under ``lock``, which many fates share."""

    __slots__ = (
        "_callbacks",
        "_errors",
        "_indices",
        "_offsets",
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
        self.first = _WAITING
        """The offset of the first row, when all rows have consecutive ones."""
        self.whole: str | None = None
        """The segment in which all rows are, at known offsets from ``first``; None when it is not as simple as that."""
        self._segments: list[str] = []
        self._offsets: npt.NDArray[np.int64] | None = None
        self._indices: npt.NDArray[np.int32] | None = None
        self._errors: list[BaseException] = []
        self._wake: threading.Condition | None = None
        self._callbacks: list[tuple[int, Callable[[], None]]] | None = None

    def fix(self, rows: int) -> None:
        """The batch has stopped growing."""
        self.rows = self.left = rows

    # ---- from the sender; the caller holds ``lock`` and runs what comes back after letting it go

    def delivered(self, rows: Rows, segment: str, first: int | None) -> list[Callable[[], None]]:
        """These rows are durable, at consecutive offsets from ``first``."""
        if rows is None and self._offsets is None:
            self._segments, self.first = [segment], first if first is not None else _UNKNOWN_OFFSET
            self.whole = segment if first is not None else None
            self.left = 0  # last: it is read without the lock
            return self._resolved()
        if rows is None:
            rows = np.arange(self.rows)
        offsets = np.arange(first, first + len(rows)) if first is not None else _UNKNOWN_OFFSET
        if segment not in self._segments:
            self._segments.append(segment)
        return self._set(rows, self._segments.index(segment), offsets)

    def failed(self, rows: Rows, error: BaseException) -> list[Callable[[], None]]:
        """These rows have failed, unless they are resolved already."""
        self._arrays()
        assert self._offsets is not None
        chosen = np.arange(self.rows) if rows is None else rows
        chosen = chosen[self._offsets[chosen] == _WAITING]
        if not len(chosen):
            return []
        self._errors.append(error)
        return self._set(chosen, len(self._errors) - 1, _FAILED)

    def _arrays(self) -> None:
        if self._offsets is None:
            self._offsets = np.full(self.rows, _WAITING, np.int64)
            self._indices = np.zeros(self.rows, np.int32)
            if self.first != _WAITING:
                self._offsets[:] = self.first + np.arange(self.rows) if self.first >= 0 else self.first

    def _set(
        self, rows: npt.NDArray[np.int64], index: int, offsets: npt.NDArray[np.int64] | int
    ) -> list[Callable[[], None]]:
        self._arrays()
        assert self._offsets is not None and self._indices is not None
        # A row that has failed by timeout stays so: somebody may have been told.
        waiting = self._offsets[rows] == _WAITING
        if not waiting.all():
            rows = rows[waiting]
            offsets = offsets[waiting] if isinstance(offsets, np.ndarray) else offsets
        self._offsets[rows] = offsets
        self._indices[rows] = index
        self.left -= len(rows)
        return self._resolved()

    def _resolved(self) -> list[Callable[[], None]]:
        if self._wake is not None:
            self._wake.notify_all()
        if self._callbacks is None:
            return []
        due = [call for row, call in self._callbacks if self.settled(row)]
        self._callbacks = [(row, call) for row, call in self._callbacks if not self.settled(row)] or None
        return due

    # ---- for those who want to know

    def settled(self, row: int) -> bool:
        """Whether this row's fate (of all rows, when -1) is known."""
        if self.left == 0:
            return True
        return row >= 0 and self._offsets is not None and bool(self._offsets[row] != _WAITING)

    def wait(self, row: int, timeout: float | None) -> None:
        """Blocks until the row is settled. Raises TimeoutError."""
        if self.settled(row):
            return
        with self.lock:
            if self._wake is None:
                self._wake = threading.Condition(self.lock)
            if not self._wake.wait_for(lambda: self.settled(row), timeout):
                raise TimeoutError(f"not durable after {timeout} s; the delivery goes on")

    def when_settled(self, row: int, call: Callable[[], None]) -> None:
        """Calls when the row is settled, from the sender's thread, or at once."""
        with self.lock:
            if not self.settled(row):
                self._callbacks = self._callbacks or []
                self._callbacks.append((row, call))
                return
        call()

    def error(self, row: int) -> BaseException | None:
        if self._offsets is None or self._offsets[row] != _FAILED:
            return None
        assert self._indices is not None
        return self._errors[self._indices[row]]

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


class Delivery(Generic[R]):
    """The receipt that is to come. Of one message: a Receipt; of a table: a TableReceipt."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> R:
        """Waits until the message is durable and returns its receipt; ``timeout`` in seconds, None: no limit.

        Raises TimeoutError when it takes longer (the delivery goes on), or what became of the message: DeliveryTimeout
        (it may or may not be in the log), ProducerFenced, InvalidRequest and its kin (it is not in the log).
        """
        raise NotImplementedError

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits as ``result`` does and returns the error, or None when all is well. Raises TimeoutError."""
        raise NotImplementedError

    def done(self) -> bool:
        """Whether ``result`` would return or raise at once."""
        raise NotImplementedError

    def add_done_callback(self, callback: Callable[[Delivery[R]], object]) -> None:
        """Calls ``callback(self)`` once, when done, in a thread of the producer; at once when it is done already.

        It must be quick and must not wait for this producer. What it raises is logged.
        """
        raise NotImplementedError


class MessageDelivery(Delivery[Receipt]):
    """Of one message that was sent."""

    __slots__ = ("_fate", "_row")

    def __init__(self, fate: Fate, row: int) -> None:
        self._fate = fate
        self._row = row

    def result(self, timeout: float | None = None) -> Receipt:
        fate, row = self._fate, self._row
        if fate.left:
            fate.wait(row, timeout)
        if fate.whole is not None:  # nearly always; the rest costs twice as much
            return _tuple(Receipt, (fate.whole, fate.first + row))
        error = fate.error(row)
        if error is not None:
            raise error
        return fate.receipt(self._row)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._fate.wait(self._row, timeout)
        return self._fate.error(self._row)

    def done(self) -> bool:
        return self._fate.settled(self._row)

    def add_done_callback(self, callback: Callable[[Delivery[Receipt]], object]) -> None:
        self._fate.when_settled(self._row, lambda: _run(callback, self))


class TableDelivery(Delivery[TableReceipt]):
    """Of a table that was written, as one or several batches."""

    __slots__ = ("_fates",)

    def __init__(self, fates: list[Fate]) -> None:
        self._fates = fates

    def result(self, timeout: float | None = None) -> TableReceipt:
        error = self.exception(timeout)
        if error is not None:
            raise error
        names: dict[str, int] = {}
        indices, offsets = [], []
        for fate in self._fates:
            segments, index, offset = fate.table()
            numbers = np.array([names.setdefault(s, len(names)) for s in segments], np.int32)
            indices.append(numbers[index] if len(numbers) else index)
            offsets.append(offset)
        none32, none64 = np.zeros(0, np.int32), np.zeros(0, np.int64)
        return TableReceipt(
            tuple(names), np.concatenate(indices) if indices else none32, np.concatenate(offsets) if offsets else none64
        )

    def exception(self, timeout: float | None = None) -> BaseException | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        for fate in self._fates:
            fate.wait(-1, None if deadline is None else max(0.0, deadline - time.monotonic()))
        return next((e for f in self._fates if (e := f.first_error()) is not None), None)

    def done(self) -> bool:
        return all(fate.settled(-1) for fate in self._fates)

    def add_done_callback(self, callback: Callable[[Delivery[TableReceipt]], object]) -> None:
        """See Delivery."""
        waiting = iter(self._fates)

        def on() -> None:
            for fate in waiting:
                if not fate.settled(-1):
                    fate.when_settled(-1, on)
                    return
            _run(callback, self)

        on()


def timed_out(timeout: float) -> DeliveryTimeout:
    return DeliveryTimeout(
        f"no outcome was learnt within {timeout} s: the messages may or may not be in the log. "
        "Are brokers and leader up? `smq broker list` shows it"
    )


def _run(callback: Callable[[Delivery[R]], object], delivery: Delivery[R]) -> None:
    try:
        callback(delivery)
    except Exception:
        log.exception("a callback of a delivery failed")
