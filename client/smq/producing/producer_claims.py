"""Claims a producer id that the user chose, through any broker of the topic."""

from __future__ import annotations

import logging
import time

from smq.transport.topic_view import TopicView
from smq_core.access.producer_ids import MAX_PRODUCER_CHARACTERS, id_of
from smq_core.errors import Conflict, SmqError, Unavailable
from smq_core.model.names import check_name
from smq_proto.v1 import data_pb2 as pb

log = logging.getLogger(__name__)

CALL_TIMEOUT_SECONDS = 3.0
RETRY_INTERVAL_SECONDS = 0.2


def claim_id(view: TopicView, producer_id: str, instance: str, epoch: int | None, timeout: float) -> tuple[str, int]:
    """The id by which brokers know the producer, and the epoch in which this instance may write.

    Without ``epoch`` it is the last one + 1. Raises InvalidRequest, ProducerFenced if another process claimed this
    epoch or a newer one, PermissionDenied, and Unavailable if no broker could write the claim within ``timeout``
    seconds.
    """
    check_name("a producer's id", producer_id, MAX_PRODUCER_CHARACTERS)
    topic = view.snapshot.topic
    request = pb.ClaimProducer(topic=topic.name, uid=topic.uid, producer=producer_id, instance=instance, epoch=epoch)
    deadline = time.monotonic() + timeout
    failure: SmqError = Unavailable(f"{view.name} has no brokers")
    while time.monotonic() < deadline:
        for replica in dict.fromkeys(r for s in view.snapshot.layout.segments for r in s.replicas):
            try:
                with view.dialer.flight(replica) as client:
                    body = view.dialer.call(client, view.name, "claim", request, timeout=CALL_TIMEOUT_SECONDS)
                claimed = pb.ClaimedProducer.FromString(body)
                return id_of(producer_id, claimed.identity), claimed.epoch
            except (Unavailable, Conflict) as error:
                log.debug("%s could not claim producer %s: %s", replica.broker, producer_id, error.message)
                failure = error
        time.sleep(RETRY_INTERVAL_SECONDS)
    raise Unavailable(
        f"no broker of {view.name} could claim producer id {producer_id!r} within {timeout:g} s: {failure.message}"
    )
