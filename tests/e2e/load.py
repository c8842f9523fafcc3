"""Load on a topic while something happens, and the proof afterwards that nothing was lost, repeated or reordered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.release import Release
from support.data.message_ledger import BackgroundPublisher, MessageLedger, check_deliveries, read_back
from support.waiting import eventually


class Load:
    """A producer of numbered messages, a few thousand a second."""

    def __init__(self, publishing: BackgroundPublisher) -> None:
        self._publishing = publishing
        self.stall = 0.0
        """The longest time between two acks, in seconds; known when the load has ended."""

    def run_rounds(self, rounds: int = 200) -> None:
        """Returns when that many more sends were acked."""
        wanted = self._publishing.acked + rounds
        eventually(lambda: self._failed() or self._publishing.acked >= wanted, what="messages are acked")

    def _failed(self) -> bool:
        if self._publishing.failure is not None:
            raise self._publishing.failure
        return False


@contextmanager
def load(release: Release, topic: str, *, at_once: int = 5) -> Iterator[Load]:
    """Publishes for the time of the block; after it everything is read back and checked, and ``stall`` is known."""
    with release.connect() as client:
        ledger = MessageLedger()
        with client.producer(topic, linger=0.02, max_in_flight=1 << 20, timeout=300) as producer:
            running = Load(publishing := BackgroundPublisher(producer, ledger, at_once=at_once))
            running.run_rounds()
            try:
                yield running
                running.run_rounds()
            finally:
                running.stall = publishing.stop()
        with client.consumer(topic, start="earliest") as consumer:
            batches = read_back(consumer, ledger.total)
        check_deliveries(ledger, batches)
    print(f"\n{topic}: {ledger.total} messages, none lost, none twice, in order; longest stall {running.stall:.2f} s")
