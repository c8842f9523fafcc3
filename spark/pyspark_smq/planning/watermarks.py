"""How far living segments can be read."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from smq.transport.dialer import Dialer
from smq_proto.flight import call
from smq_proto.v1 import data_pb2 as pb
from smq_storage.tables.pinned_reads import TopicFiles

log = logging.getLogger(__name__)

STATUS_TIMEOUT_SECONDS = 1.0


def watermarks(files: TopicFiles, dialer: Dialer) -> dict[str, int]:
    """The offset below which messages of living segments can be read, from one call to each of their brokers.

    A segment of which no broker answers is not there: it can be read as far as its files reach.
    """
    replicas = {r.address: r.incarnation for s in files.layout.segments for r in s.replicas}

    def reports(address: str) -> Iterable[pb.SegmentReport]:
        try:
            with dialer.flight(address) as client:
                body = call(client, "status", pb.DrainRequest(), timeout=STATUS_TIMEOUT_SECONDS)
            return pb.BrokerStatus.FromString(body).segments
        except Exception as error:  # whatever Flight raises for a broker that is not there
            log.debug("%s did not say how far its segments reach: %s", address, error)
            return ()

    found: dict[str, int] = {}
    with ThreadPoolExecutor(max(1, min(16, len(replicas)))) as executor:
        for report in (it for some in executor.map(reports, replicas) for it in some):
            if report.uid == files.uid and report.topic == files.topic:
                found[report.segment] = max(found.get(report.segment, 0), report.watermark)
    return found
