"""Fetches the seal outcomes of segments that are being replaced, from brokers."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.flight as fl

from smq.transport.dialer import Dialer
from smq_core.errors import SmqError, Unreachable
from smq_core.model.entities import SealOutcome, Segment, Topic
from smq_proto.flight import call
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_from_pb, segment_from_pb

log = logging.getLogger(__name__)

OUTCOME_TIMEOUT_SECONDS = 0.3
COOLDOWN_SECONDS = 1.0


class SealOutcomeClient:
    """For one thread. After a broker did not answer in time, it gets no requests for a while."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._clients: dict[str, fl.FlightClient] = {}
        self._cooldown_until: dict[str, float] = {}

    def fetch(
        self, topic: Topic, segment: str, producer: str, addresses: Iterable[str]
    ) -> tuple[SealOutcome, tuple[Segment, ...]] | None:
        """The outcome from the first broker that has it, with the successors in its view; None if none has it yet.

        It has the state of this producer only.
        """
        request = pb.OutcomeRequest(topic=topic.name, uid=topic.uid, segment=segment, producer=producer)
        for address in addresses:
            if time.monotonic() < self._cooldown_until.get(address, 0.0):
                continue
            try:
                client = self._clients.get(address)
                if client is None:
                    client = self._clients[address] = self._dialer.flight(address)
                reply = pb.SealOutcome.FromString(call(client, "outcome", request, timeout=OUTCOME_TIMEOUT_SECONDS))
                return outcome_from_pb(reply), tuple(segment_from_pb(s) for s in reply.successors)
            except SmqError as error:
                log.debug("%s has no outcome of %s: %s", address, segment, error.message)
                if isinstance(error, Unreachable):
                    self._cooldown_until[address] = time.monotonic() + COOLDOWN_SECONDS
                    self._drop(address)
        return None

    def close(self) -> None:
        for address in list(self._clients):
            self._drop(address)

    def _drop(self, address: str) -> None:
        client = self._clients.pop(address, None)
        if client is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                client.close()
