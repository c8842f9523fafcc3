"""Fetches seal outcomes while a producer waits for some.

A primary sends the outcome on the stream itself. If the stream is broken, or nothing came on it for a while, other
brokers are queried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from smq.producing.lanes.segment_sender import SegmentSender
from smq.producing.runtime.outcome_worker import OutcomeWorker
from smq.producing.seal_outcomes import SealOutcomeClient
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Segment, Topic
from smq_storage.process.locks import requires_lock

# After this long without a reply on the stream, other brokers are queried.
OUTCOME_POLL_DELAY_SECONDS = 0.3


class OutcomeFetcher:
    """Queries from ``start`` until no outcome is missing, or until ``closing`` is set.

    ``worker`` runs the queries for all producers of the client. ``lock`` guards the senders. ``ended`` and
    ``addresses`` (which brokers to query for a segment's outcome, in order) are called with the lock. ``on_outcome`` is
    called without it, with the outcome and the successors.
    """

    def __init__(
        self,
        topic: Topic,
        *,
        producer: str,
        worker: OutcomeWorker,
        lock: threading.Lock,
        closing: threading.Event,
        senders: Mapping[str, SegmentSender],
        ended: Callable[[], bool],
        addresses: Callable[[Segment], list[str]],
        on_outcome: Callable[[SealOutcome, tuple[Segment, ...]], None],
    ) -> None:
        self._topic = topic
        self._producer = producer
        self._worker = worker
        self._lock = lock
        self._closing = closing
        self._senders = senders
        self._ended = ended
        self._addresses = addresses
        self._on_outcome = on_outcome
        self._running = False

    @requires_lock("_lock")
    def start(self) -> None:
        """Queries soon, unless it does already."""
        if not self._running:
            self._running = True
            self._worker.add(self._query)

    def _query(self, client: SealOutcomeClient) -> bool:
        """One round. False: no outcome is missing any more."""
        with self._lock:
            missing = self._missing_outcomes()
        if missing is None:
            return False
        for segment, addresses in missing:
            found = client.fetch(self._topic, segment, self._producer, addresses)
            if found is not None:
                self._on_outcome(*found)
        return True

    @requires_lock("_lock")
    def _missing_outcomes(self) -> list[tuple[str, list[str]]] | None:
        """The segments whose outcomes to fetch now, with addresses to query; None if no more will be needed."""
        now = time.monotonic()
        moving = [r for r in self._senders.values() if r.replaced_at is not None and not r.send_queue.idle]
        if self._ended() or self._closing.is_set() or not moving:
            self._running = False
            return None
        found = []
        for sender in moving:
            assert sender.replaced_at is not None
            last_reply_at = max(sender.replaced_at, sender.acked_at)
            if sender.session is not None and now - last_reply_at < OUTCOME_POLL_DELAY_SECONDS:
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
