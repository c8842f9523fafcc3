"""Claims of producer ids in the simulated store: ``smq_core.producing.producer_claim`` with conditional PUTs."""

from __future__ import annotations

from smq_core.producing.producer_claim import claim_producer
from support.sim.engine.world import Process, Steps
from support.sim.filer import conditional_puts
from support.sim.filer.object_store import SimulatedStore


def claim(store: SimulatedStore, process: Process, producer: str, instance: str, epoch: int | None) -> Steps:
    """The epoch that this instance has from now on. Raises ProducerFenced, StoreUnavailable."""
    path = f"producers/{producer}"
    while True:
        found = yield store.get(process, path)
        last, etag = found if found is not None else (None, None)
        claimed = claim_producer(last, producer, instance, epoch, store.world.now)
        if claimed is last:
            return claimed.epoch
        result = yield from conditional_puts.put_conditionally(
            store, process, path, claimed, etag, lambda it, claimed=claimed: it == claimed
        )
        if isinstance(result, conditional_puts.PutApplied):
            return claimed.epoch
