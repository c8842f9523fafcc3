"""The demo's publisher: sends the flights over and over, at a given rate."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa

import smq
from smq.cli.files.column_matching import match_columns
from smq_core.model.entities import Column

MOST_ROWS = 8192
WRITES_PER_SECOND = 10


class Publisher(threading.Thread):
    """Publishes from ``start`` to ``finish``. If publishing fails, ``error`` has the exception.

    Each message has its number, counted from 0, and the count of completed rounds through the source.
    """

    def __init__(self, client: smq.Client, topic: str, source: pa.Table, rate: int) -> None:
        super().__init__(name="publisher", daemon=True)
        columns = [Column(*c) for c in client.admin().topic(topic).schema]
        fitted = match_columns(source, [c for c in columns if c.name not in ("round", "number")])
        self._source = fitted.combine_chunks()
        self._client = client
        self._topic = topic
        self._finish = threading.Event()
        self._lock = threading.Lock()  # each segment's thread reports its durable messages
        self.rate = rate
        """Messages per second. It may be changed at any time."""
        self.sent = 0
        self.durable = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with self._client.producer(self._topic) as producer:
                due = time.monotonic()
                while not self._finish.wait(max(0.0, due - time.monotonic())):
                    rate = self.rate
                    rows = self._next(min(MOST_ROWS, max(1, rate // WRITES_PER_SECOND)))
                    producer.write(rows).add_done_callback(self._count)
                    self.sent += rows.num_rows
                    # If the brokers were too slow, the missed time is not made up with a burst.
                    due = max(due + rows.num_rows / rate, time.monotonic() - 0.5)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        """Stops publishing. The thread ends when everything is durable."""
        self._finish.set()

    def check(self) -> bool:
        """Whether it still runs. Raises SmqError if publishing failed."""
        if self.error is not None:
            raise smq.SmqError(f"publishing failed: {self.error}") from self.error
        return self.is_alive()

    def _next(self, most: int) -> pa.Table:
        round_, start = divmod(self.sent, self._source.num_rows)
        rows = self._source.slice(start, most)
        numbers = np.arange(self.sent, self.sent + rows.num_rows, dtype=np.int64)
        rounds = np.full(rows.num_rows, round_, dtype=np.int32)
        return rows.append_column("round", pa.array(rounds)).append_column("number", pa.array(numbers))

    def _count(self, delivery: smq.Delivery[smq.TableReceipt]) -> None:
        rows = len(delivery.result())
        with self._lock:
            self.durable += rows
