"""Published and delivered messages, numbered per key, so that loss, duplicates and reordering are detected."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

import smq
from support.waiting import HANG_GUARD


def message(key: int, number: int) -> bytes:
    return b"%d:%d" % (key, number)


@dataclass
class MessageLedger:
    """Messages published per key, counted from 0, and the deliveries."""

    keys: int = 16
    sent: list[int] = field(default_factory=list)
    deliveries: list[smq.Delivery[smq.Receipt]] = field(default_factory=list)
    longest_stall: float = 0.0

    def __post_init__(self) -> None:
        self.sent = [0] * self.keys

    def send(self, producer: smq.Producer, count: int) -> None:
        """Sends ``count`` messages, the keys in turn."""
        for _ in range(count):
            key = len(self.deliveries) % self.keys
            self.deliveries.append(producer.send(message(key, self.sent[key]), key=b"key-%d" % key))
            self.sent[key] += 1

    @property
    def total(self) -> int:
        return sum(self.sent)


class BackgroundPublisher:
    """Publishes in the background until stopped, and measures the longest time without any ack.

    Publishes as fast as the producer accepts, so that with a small ``max_in_flight`` batches are always in flight.
    """

    def __init__(self, producer: smq.Producer, ledger: MessageLedger, *, at_once: int = 50) -> None:
        self.ledger = ledger
        self._producer = producer
        self._at_once = at_once
        self._stop = threading.Event()
        self._acked_at: list[float] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.001):
                self.ledger.send(self._producer, self._at_once)
                self.ledger.deliveries[-1].add_done_callback(lambda _: self._acked_at.append(time.monotonic()))
        except BaseException as error:
            self.failure = error

    @property
    def acked(self) -> int:
        """How many acks were received."""
        return len(self._acked_at)

    def stop(self) -> float:
        """Stops publishing and returns the longest time between two acks, in seconds."""
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        self._producer.flush(HANG_GUARD)
        return max((b - a for a, b in itertools.pairwise(self._acked_at)), default=0.0)


def read_back(consumer: smq.Consumer, total: int) -> list[smq.Batch]:
    """Reads batches until there are ``total`` messages, and a moment longer to detect surplus ones."""
    batches: list[smq.Batch] = []
    rows = 0
    deadline = time.monotonic() + HANG_GUARD
    while rows < total and time.monotonic() < deadline:
        batch = consumer.poll(0.5)
        if batch is not None:
            batches.append(batch)
            rows += len(batch)
    extra = consumer.poll(0.3)
    if extra is not None:
        batches.append(extra)
    return batches


def check_deliveries(ledger: MessageLedger, batches: list[smq.Batch]) -> None:
    """Checks that every message was delivered once, in order per key, and at the position in its receipt."""
    found: dict[int, list[int]] = defaultdict(list)
    places: dict[tuple[str, int], bytes] = {}
    for batch in batches:
        for row, value in enumerate(batch.table.column("value").to_pylist()):
            key, number = map(int, value.split(b":"))
            found[key].append(number)
            places[batch.segment, batch.first_offset + row] = value
    for key, count in enumerate(ledger.sent):
        numbers = found[key]
        missing = sorted(set(range(count)) - set(numbers))
        assert not missing, f"key {key}: {len(missing)} of {count} are lost, from {missing[:3]} on"
        assert len(numbers) == count, f"key {key}: {len(numbers) - count} came twice"
        assert numbers == list(range(count)), f"key {key} is out of order"
    counts = [0] * ledger.keys
    for number, delivery in enumerate(ledger.deliveries):
        key = number % ledger.keys
        receipt = delivery.result(HANG_GUARD)
        if receipt.offset is not None:
            assert places[receipt.segment, receipt.offset] == message(key, counts[key])
        counts[key] += 1
