"""How far living segments reach: what their brokers report, and what their chunk chains have."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from smq.transport.dialer import Dialer
from smq_core.errors import SmqError
from smq_core.model.entities import Segment
from smq_proto.flight import call
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
        self._clients: dict[str, fl.FlightClient] = {}
        self._executor: ThreadPoolExecutor | None = None

    def reaches(self, uid: str, segments: Iterable[Segment]) -> dict[str, Reach]:
        """How far these segments of the topic with that uid reach, by one call to each of their brokers, at once.

        A segment is left out if none of its replicas reports it within STATUS_TIMEOUT_SECONDS.
        """
        wanted = {(r.address, r.incarnation, s.name) for s in segments for r in s.replicas}
        addresses = sorted({address for address, _, _ in wanted})
        found: dict[str, Reach] = {}
        for address, status in zip(addresses, self._poll(addresses), strict=True):
            if status is None:
                continue
            for report in status.segments:
                if (address, status.incarnation, report.segment) not in wanted or report.uid not in (uid, ""):
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

    def _poll(self, addresses: list[str]) -> Iterable[pb.BrokerStatus | None]:
        if len(addresses) <= 1:
            return [self._status(address) for address in addresses]
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="smq-broker-status")
            executor = self._executor
        return executor.map(self._status, addresses)

    def _status(self, address: str) -> pb.BrokerStatus | None:
        with self._lock:
            client = self._clients.get(address)
            if client is None:
                client = self._clients[address] = self._dialer.flight(address)
        try:
            body = call(client, "status", pb.BrokerStatus(), timeout=STATUS_TIMEOUT_SECONDS)
            return pb.BrokerStatus.FromString(body)
        except SmqError as error:
            log.info("%s did not report how far its segments reach: %s", address, error.message)
            with self._lock:  # so that a broker that comes back is found at once
                if self._clients.get(address) is client:
                    del self._clients[address]
            return None
