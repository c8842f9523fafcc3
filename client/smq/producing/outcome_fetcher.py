"""The thread that fetches seal outcomes while a producer waits for some.

A primary sends the outcome on the stream itself. If the stream is broken, or nothing came on it for a while, the thread
queries other brokers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from smq.producing.seal_outcomes import SealOutcomeClient
from smq.producing.segment_sender import SegmentSender
from smq_core.model.entities import SealOutcome, Segment

OUTCOME_POLL_SECONDS = 0.03
OUTCOME_POLL_DELAY_SECONDS = 0.3
"""After this long without a reply on the stream, other brokers are queried."""


class OutcomeFetcher:
    """Its thread runs from ``start`` until no outcome is missing, or until ``closing`` is set.

    Each thread has a client of its own and closes it. ``lock`` guards the senders. ``ended`` and ``addresses`` (which
    brokers to query for a segment's outcome, in order) are called with the lock. ``on_outcome`` is called without it,
    with the outcome and the successors.
    """

    def __init__(
        self,
        name: str,
        make_client: Callable[[], SealOutcomeClient],
        lock: threading.Lock,
        closing: threading.Event,
        senders: Mapping[str, SegmentSender],
        ended: Callable[[], bool],
        addresses: Callable[[Segment], list[str]],
        on_outcome: Callable[[SealOutcome, tuple[Segment, ...]], None],
    ) -> None:
        self._name = name
        self._make_client = make_client
        self._lock = lock
        self._closing = closing
        self._senders = senders
        self._ended = ended
        self._addresses = addresses
        self._on_outcome = on_outcome
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread unless it runs. The caller holds the lock."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=f"smq-outcomes-{self._name}", daemon=True)
            self._thread.start()

    def join(self, timeout: float) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        client = self._make_client()
        try:
            self._fetch(client)
        finally:
            client.close()

    def _fetch(self, client: SealOutcomeClient) -> None:
        while True:
            with self._lock:
                missing = self._missing_outcomes()
            if missing is None:
                return
            for segment, addresses in missing:
                found = client.fetch(segment, addresses)
                if found is not None:
                    self._on_outcome(*found)
            if self._closing.wait(OUTCOME_POLL_SECONDS):
                return

    def _missing_outcomes(self) -> list[tuple[str, list[str]]] | None:
        """The segments whose outcomes to fetch now, with addresses to query; None if no more will be needed."""
        now = time.monotonic()
        moving = [r for r in self._senders.values() if r.replaced_at is not None and not r.send_queue.idle]
        if self._ended() or not moving:
            self._thread = None
            return None
        found = []
        for sender in moving:
            assert sender.replaced_at is not None
            last_reply_at = max(sender.replaced_at, sender.acked_at)
            if sender.stream is not None and now - last_reply_at < OUTCOME_POLL_DELAY_SECONDS:
                continue
            segment = sender.send_queue.segment
            found.append((segment.name, self._addresses(segment)))
        return found


def outcome_addresses(segment: Segment, targets: Iterable[Segment], living: Iterable[Segment]) -> list[str]:
    """Addresses to query: brokers that host a successor first, then any broker of the topic.

    ``targets`` are the segments that producers write to next, ``living`` those of the layout.
    """
    near = [r.address for s in targets if s.range.overlaps(segment.range) for r in s.replicas]
    return list(dict.fromkeys([*near, *(r.address for s in living for r in s.replicas)]))
