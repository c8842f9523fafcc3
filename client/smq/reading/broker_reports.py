"""How far living segments reach: what their brokers report, and what their chunk chains have."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from smq.transport.dialer import Dialer
from smq_core.errors import SmqError
from smq_core.model.entities import Replica, Segment
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import make_lock

if TYPE_CHECKING:
    import pyarrow.flight as fl

log = logging.getLogger(__name__)

STATUS_TIMEOUT_SECONDS = 1.0
# How many brokers are asked at once.
MAX_CALLS = 16


@dataclass(frozen=True, slots=True)
class Reach:
    """Messages below ``watermark`` can be read, and those below ``flushed`` are in files."""

    watermark: int
    flushed: int


class BrokerReports:
    """Asks brokers for the status of their segments. Keeps its connections. Safe from many threads."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._lock = make_lock()
        self._clients: dict[Replica, fl.FlightClient] = {}
        self._executor: ThreadPoolExecutor | None = None

    def reaches(self, topic: str, uid: str, segments: Iterable[Segment]) -> dict[str, Reach]:
        """How far these segments of the topic with that uid reach, by one call to each of their brokers, at once.

        A segment is left out if none of its replicas reports it within STATUS_TIMEOUT_SECONDS.
        """
        wanted = {(r, s.name) for s in segments for r in s.replicas}
        replicas = sorted({replica for replica, _ in wanted}, key=lambda it: it.address)
        found: dict[str, Reach] = {}
        for replica, status in zip(replicas, self._poll(topic, replicas), strict=True):
            if status is None or status.incarnation != replica.incarnation:
                continue
            for report in status.segments:
                if (replica, report.segment) not in wanted or report.uid not in (uid, ""):
                    continue
                known = found.get(report.segment, Reach(0, 0))
                # A follower may not have learned yet that messages are durable which its primary has flushed.
                watermark = max(report.watermark, report.chain_end)
                found[report.segment] = Reach(max(known.watermark, watermark), max(known.flushed, report.chain_end))
        return found

    def close(self) -> None:
        """Closes the connections. Repeatable."""
        with self._lock:
            clients, self._clients = self._clients, {}
            executor, self._executor = self._executor, None
        for client in clients.values():
            with suppress(Exception):
                client.close()
        if executor is not None:
            executor.shutdown(wait=False)

    def __enter__(self) -> BrokerReports:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _poll(self, topic: str, replicas: list[Replica]) -> Iterable[pb.BrokerStatus | None]:
        if len(replicas) <= 1:
            return [self._status(topic, replica) for replica in replicas]
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="smq-broker-status")
            executor = self._executor
        return executor.map(partial(self._status, topic), replicas)

    def _status(self, topic: str, replica: Replica) -> pb.BrokerStatus | None:
        client: fl.FlightClient | None = None
        try:
            client = self._client(replica)
            body = self._dialer.call(client, topic, "status", pb.BrokerStatus(), timeout=STATUS_TIMEOUT_SECONDS)
            return pb.BrokerStatus.FromString(body)
        except SmqError as error:
            log.info("%s did not report how far its segments reach: %s", replica.address, error.message)
            with self._lock:  # so that a broker that comes back is found at once
                if client is not None and self._clients.get(replica) is client:
                    del self._clients[replica]
            return None

    def _client(self, replica: Replica) -> fl.FlightClient:
        with self._lock:
            found = self._clients.get(replica)
        if found is None:
            made = self._dialer.flight(replica)
            with self._lock:
                found = self._clients.setdefault(replica, made)
        return found
