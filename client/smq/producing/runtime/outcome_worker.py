"""One thread that queries seal outcomes for all producers of a client, with connections that they share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from smq.producing.seal_outcomes import SealOutcomeClient
from smq_storage.process.locks import make_lock

log = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 0.03

# One round of queries of a producer. False: it misses no outcome any more.
Query = Callable[[SealOutcomeClient], bool]


class OutcomeWorker:
    """The thread starts with the first query. Connections are closed when no producer misses an outcome."""

    def __init__(self, make_client: Callable[[], SealOutcomeClient]) -> None:
        self._make_client = make_client
        self._wake = threading.Condition(make_lock())
        self._queries: list[Query] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, query: Query) -> None:
        """Calls ``query`` in the thread, again and again until it returns False, or until ``close``."""
        with self._wake:
            if self._closed:
                return
            self._queries.append(query)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="smq-seal-outcomes", daemon=True)
                self._thread.start()
            self._wake.notify()

    def close(self) -> None:
        """Ends the thread. Repeatable, also from a query."""
        with self._wake:
            self._closed = True
            self._wake.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _run(self) -> None:
        client: SealOutcomeClient | None = None
        while True:
            with self._wake:
                while client is None and not self._queries and not self._closed:
                    self._wake.wait()
                queries, closed = list(self._queries), self._closed
            if client is not None and (closed or not queries):
                client.close()  # without the lock, because a producer waits for that with its own
                client = None
            if closed:
                return
            if not queries:
                continue
            client = client or self._make_client()
            for query in queries:
                if not self._run_query(query, client):
                    with self._wake:
                        self._queries.remove(query)
            with self._wake:
                if self._queries and not self._closed:
                    self._wake.wait(POLL_INTERVAL_SECONDS)

    @staticmethod
    def _run_query(query: Query, client: SealOutcomeClient) -> bool:
        try:
            return query(client)
        except Exception:
            log.exception("a query for seal outcomes failed")
            return True
