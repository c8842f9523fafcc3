"""_producers/<id>.json: which process may write with a producer id, changed by compare-and-swap."""

from __future__ import annotations

from smq_core.access.producer_ids import ANYBODY, Claimant
from smq_core.errors import Conflict
from smq_core.model.entities import Micros
from smq_core.producing.producer_claim import ProducerClaim, claim_producer
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_document, write_document
from smq_storage.object_store.store import Store

DEFAULT_RETRY_POLICY = RetryPolicy()
MAX_ATTEMPTS = 20


def claim(
    store: Store,
    topic: str,
    uid: str,
    producer: str,
    instance: str,
    epoch: int | None,
    *,
    now: Micros,
    claimant: Claimant = ANYBODY,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> ProducerClaim:
    """Claims the id for this instance; without ``epoch`` it gets the last one + 1. Repeating the call is harmless.

    Raises PermissionDenied (another identity made the id), ProducerFenced (another process claimed this epoch or a
    newer one), and Conflict (too many processes claim the id at once). Raises StoreUnavailable, and StoreStateUnknown
    if the claim may have been written.
    """
    path = paths.producer_claim(topic, uid, producer)
    for _ in range(MAX_ATTEMPTS):
        found = read_document(store, path, ProducerClaim)
        last, etag = found if found is not None else (None, None)
        new = claim_producer(last, producer, instance, epoch, now, claimant)
        if new is last:
            return new
        written = write_document(
            store, path, new, etag, is_mine=lambda it: it.instance == instance, retry_policy=retry_policy
        )
        if written is not None:
            return new
    raise Conflict(f"many processes claim producer {producer} at the same time: try again")
