"""Asks brokers what became of segments that are being replaced."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.flight as fl

from smq.network import Network
from smq_core.errors import SmqError
from smq_core.model import SealOutcome, Segment
from smq_proto.flight import call
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_from_pb, segment_from_pb

log = logging.getLogger("smq")

ANSWER_WITHIN = 0.3
LEAVE_ALONE_FOR = 1.0


class OutcomeAsker:
    """Used by one thread. One that does not answer in time is left alone for a while."""

    def __init__(self, topic: str, uid: str, producer: str, network: Network) -> None:
        self._topic = topic
        self._uid = uid
        self._producer = producer
        self._network = network
        self._clients: dict[str, fl.FlightClient] = {}
        self._silent_until: dict[str, float] = {}

    def ask(self, segment: str, addresses: Iterable[str]) -> tuple[SealOutcome, tuple[Segment, ...]] | None:
        """The outcome from the first that knows it, with the successors as it knows them; None: nobody does yet."""
        request = pb.OutcomeRequest(topic=self._topic, uid=self._uid, segment=segment, producer=self._producer)
        for address in addresses:
            if time.monotonic() < self._silent_until.get(address, 0.0):
                continue
            try:
                client = self._clients.get(address)
                if client is None:
                    client = self._clients[address] = self._network.flight(address)
                reply = pb.SealOutcome.FromString(call(client, "outcome", request, timeout=ANSWER_WITHIN))
                return outcome_from_pb(reply), tuple(segment_from_pb(s) for s in reply.successors)
            except SmqError as error:
                log.debug("%s does not tell the outcome of %s: %s", address, segment, error.message)
                if not isinstance(error.__cause__, pa.ArrowException) or not getattr(
                    error.__cause__, "extra_info", None
                ):
                    self._silent_until[address] = time.monotonic() + LEAVE_ALONE_FOR
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
