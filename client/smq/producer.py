"""The producer as a program sees it: send one message, write a table, flush, close."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from smq.delivery import Delivery, Receipt, TableReceipt

if TYPE_CHECKING:
    from smq.view import TopicView

Headers = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]


class Producer:
    """Made by :meth:`smq.Client.producer`. Safe from many threads; what one thread sends stays in its order per key.

    Messages are batched: they leave after ``linger`` seconds or when a batch is full. When the program falls silent
    nothing is lost, ``close`` (or the end of the ``with`` block) delivers all that was handed over.
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
        raise NotImplementedError

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
        raise NotImplementedError

    def write(
        self, table: pa.Table | pa.RecordBatch, key: str | pa.Array | pa.ChunkedArray | None = None
    ) -> Delivery[TableReceipt]:
        """Hands over a whole table, the fast way; the receipt is for all its rows. Blocks as ``send`` does.

        A topic without a schema takes the columns ``key``, ``value``, ``headers``, ``timestamp``; missing ones are filled
        (timestamp with now). A topic with a schema takes its own columns, ``headers`` and ``timestamp``. ``key`` names the
        column that is hashed, by default the topic's key column or ``key``: binary and string columns hash their bytes,
        others as :func:`smq.keys.canonical` says. Rows without a key go to one segment per batch, in turn.

        Raises SchemaMismatch (``expected``: the schema), InvalidRequest (no such key column), MessageTooLarge,
        Overloaded, ProducerFenced.
        """
        raise NotImplementedError

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was handed over so far has its outcome; ``timeout`` in seconds, None: the producer's.

        Raises DeliveryTimeout, or the first error among messages that nobody asked about yet.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Flushes, then ends the streams. Repeatable. Raises what ``flush`` raises, after everything has ended."""
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        raise NotImplementedError

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
