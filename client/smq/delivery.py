"""Deliveries and receipts: how a program learns the outcome of the messages that it handed to a producer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

R = TypeVar("R")


# How many segments a repr names at most.
MAX_NAMED = 5


class Receipt(NamedTuple):
    """A durable message: its segment and its offset in that segment.

    ``offset`` is None in one rare case: the message is in the log, but a failover happened so long after the write that
    its offset is no longer known.
    """

    segment: str
    offset: int | None


@dataclass(frozen=True, slots=True)
class TableReceipt:
    """The receipt of a table whose rows are all durable: row i is in ``segments[segment_index[i]]`` at ``offsets[i]``.

    ``segment_index`` is int32, ``offsets`` int64, both of shape (rows,); an offset is -2 if it is no longer known
    (see :class:`Receipt`).
    """

    segments: tuple[str, ...]
    segment_index: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        count = len(self.segments)
        where = ", ".join(self.segments) if count <= MAX_NAMED else f"{count} segments"
        return f"<TableReceipt of {len(self):,} rows in {where or 'no segment'}>"

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> Receipt:
        """Returns the receipt of one row."""
        offset = int(self.offsets[row])
        return Receipt(self.segments[self.segment_index[row]], offset if offset >= 0 else None)


class PublishedRange(NamedTuple):
    """Messages with consecutive offsets in one segment. ``first_offset`` is None if it is no longer known."""

    segment: str
    first_offset: int | None
    rows: int

    @property
    def stop(self) -> int | None:
        """The offset after the last one."""
        return None if self.first_offset is None else self.first_offset + self.rows


@dataclass(frozen=True, slots=True)
class FileReceipt:
    """Where the rows of one published file are. A file without rows has no ranges."""

    file: str
    ranges: tuple[PublishedRange, ...]

    @property
    def rows(self) -> int:
        return sum(it.rows for it in self.ranges)


@dataclass(frozen=True, slots=True)
class FilesReceipt:
    """The receipt of files whose rows are all durable, in the order in which they were given."""

    files: tuple[FileReceipt, ...]

    @property
    def rows(self) -> int:
        return sum(it.rows for it in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicReceipt:
    """A version of an app that is in the log with all its rows.

    If ``already_published``, this version or a later one was published before, and the rows of this call were dropped.
    Unless this client has published it itself, a warning is logged, too. ``rows`` is the number of rows that this call
    has published, and ``last_version`` the app's last version: a higher one can be published.
    """

    app: str
    version: int
    already_published: bool
    rows: int
    last_version: int


class Delivery(Generic[R]):
    """A future for the receipt: a Receipt for one message, a TableReceipt for a table, a FilesReceipt for files."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.done():
            return "<Delivery: no outcome yet>"
        error = self._known_error()
        return f"<Delivery: {self.result(0) if error is None else f'failed with {type(error).__name__}'}>"

    def _known_error(self) -> BaseException | None:
        """The error of a delivery that is done, which does not count as raised by this."""
        raise NotImplementedError

    def result(self, timeout: float | None = None) -> R:
        """Waits until the message is durable and returns its receipt; ``timeout`` in seconds, None: no limit.

        Raises TimeoutError if that takes longer; the delivery continues. If the delivery failed, raises its error:
        DeliveryTimeout or DeliveryUnknown (the message may or may not be in the log), ProducerFenced, InvalidRequest or
        one of its subclasses (the message is not in the log). Neither ``flush`` nor ``close`` of the producer raises an
        error again that the program got here.
        """
        raise NotImplementedError

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits as ``result`` does and returns the error, or None if there is none. Raises TimeoutError."""
        raise NotImplementedError

    def done(self) -> bool:
        """Whether ``result`` would return or raise at once."""
        raise NotImplementedError

    def add_done_callback(self, callback: Callable[[Delivery[R]], object]) -> None:
        """Calls ``callback(self)`` once: in a thread of the producer when this is done, or at once if that has
        happened already.

        The callback must be quick and must not wait for this producer. Its exceptions are logged.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """Rows that are uploaded and not published, made by :meth:`smq.Client.stage`. Can be sent to another process.

    ``name`` and ``etag`` are those of the upload in the filer, ``bytes`` its size. The messages' timestamps are
    ``timestamp_min .. timestamp_max``, in microseconds since the Unix epoch.
    """

    name: str
    etag: str
    rows: int
    bytes: int
    timestamp_min: int
    timestamp_max: int
    schema_version: int
