"""Fetches the seal outcomes of segments that are being replaced, from brokers."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.flight as fl

from smq.transport.adaptive_timeout import AdaptiveTimeout
from smq.transport.dialer import Dialer
from smq_core.errors import SmqError, Unreachable
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Replica, Segment, Topic
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_from_pb, segment_from_pb

log = logging.getLogger(__name__)

MIN_TIMEOUT_SECONDS = 0.3
MAX_TIMEOUT_SECONDS = 10.0


class SealOutcomeClient:
    """For one thread. A broker that did not answer in time gets no request for a while, and then has more time."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._clients: dict[Replica, fl.FlightClient] = {}
        self._timeouts: dict[Replica, AdaptiveTimeout] = {}

    def fetch(
        self, topic: Topic, segment: str, producer: str, replicas: Iterable[Replica]
    ) -> tuple[SealOutcome, tuple[Segment, ...]] | None:
        """The outcome from the first replica that has it, with the successors in its view; None if none has it yet.

        It has the state of this producer only.
        """
        request = pb.OutcomeRequest(topic=topic.name, uid=topic.uid, segment=segment, producer=producer)
        for replica in replicas:
            timeout = self._timeouts.setdefault(replica, AdaptiveTimeout(MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS))
            sent_at = time.monotonic()
            if not timeout.may_send(sent_at):
                continue
            try:
                client = self._clients.get(replica)
                if client is None:
                    client = self._clients[replica] = self._dialer.flight(replica)
                body = self._dialer.call(client, topic.name, "outcome", request, timeout=timeout.seconds)
                reply = pb.SealOutcome.FromString(body)
                timeout.answered()
                return outcome_from_pb(reply), tuple(segment_from_pb(s) for s in reply.successors)
            except SmqError as error:
                log.debug("%s has no outcome of %s: %s", replica.broker, segment, error.message)
                if isinstance(error, Unreachable):
                    timeout.failed(sent_at, time.monotonic())
                    self._drop(replica)
                else:
                    timeout.answered()
        return None

    def close(self) -> None:
        for replica in list(self._clients):
            self._drop(replica)

    def _drop(self, replica: Replica) -> None:
        client = self._clients.pop(replica, None)
        if client is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                client.close()
