"""Claims producer ids for clients, which have no access to the filer's documents."""

from __future__ import annotations

from smq_broker.runtime.clock import Clock
from smq_core.access.producer_ids import MAX_PRODUCER_CHARACTERS, Claimant
from smq_core.errors import InvalidRequest, UnknownTopic
from smq_core.model.entities import Micros
from smq_core.model.names import check_labels, check_name
from smq_proto.v1 import data_pb2 as pb
from smq_storage.catalog.producer_claims import claim
from smq_storage.catalog.topics import read_current_topic
from smq_storage.object_store.store import Store

# With the identity that made it.
MAX_FULL_ID_CHARACTERS = 1024
MAX_INSTANCE_CHARACTERS = 64
# Epochs have 64 bits on the wire. Beyond this one there would be none left for later claims.
MAX_EPOCH = 1 << 62


def check_identity(producer: str, instance: str) -> None:
    """Raises InvalidRequest if these cannot be a producer's id and instance."""
    check_name("a producer's id", producer, MAX_FULL_ID_CHARACTERS)
    check_labels([("a producer's instance", instance)], MAX_INSTANCE_CHARACTERS)


class ProducerClaims:
    """Any broker can claim any id: the filer's compare-and-swap decides."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def claim(self, topic: str, request: pb.ClaimProducer, claimant: Claimant) -> pb.ClaimedProducer:
        """Raises InvalidRequest, UnknownTopic, PermissionDenied, ProducerFenced, Conflict, StoreUnavailable."""
        check_name("a producer's id", request.producer, MAX_PRODUCER_CHARACTERS)
        check_identity(request.producer, request.instance)
        if not request.instance:
            raise InvalidRequest("a claim needs the instance of the producer process")
        current = read_current_topic(self._store, topic)
        if current is None or current.uid != request.uid:
            raise UnknownTopic(f"topic {topic} was deleted: create it again and open a new producer", topic=topic)
        epoch = request.epoch if request.HasField("epoch") else None
        if epoch is not None and epoch > MAX_EPOCH:
            raise InvalidRequest(f"an epoch is at most {MAX_EPOCH}: the next claim takes the one after it")
        now = Micros(self._clock.now())
        claimed = claim(
            self._store, topic, request.uid, request.producer, request.instance, epoch, now=now, claimant=claimant
        )
        return pb.ClaimedProducer(epoch=claimed.epoch, identity=claimed.identity)
