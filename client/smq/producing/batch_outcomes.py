"""What a producer does with the outcome of sub-batches: their deliveries learn it, and their bytes are free again."""

from __future__ import annotations

from collections.abc import Iterable

from smq.producing.batching.partitioning import SubBatch
from smq.producing.callbacks import Callbacks
from smq.producing.in_flight_budget import InFlightBudget
from smq_core.errors import DeliveryUnknown, SmqError
from smq_core.producing.send_queue import DeliveredSubBatch


class BatchOutcomes:
    """The caller of every method holds the producer's lock, and calls what is returned after it has released it."""

    def __init__(self, topic: str, producer_id: str, budget: InFlightBudget) -> None:
        self._topic = topic
        self._producer_id = producer_id
        self._budget = budget

    def delivered(self, delivered: Iterable[DeliveredSubBatch]) -> Callbacks:
        callbacks: Callbacks = []
        for one in delivered:
            sub_batch = one.sub_batch
            assert isinstance(sub_batch, SubBatch)
            callbacks += sub_batch.delivery_state.delivered(sub_batch.rows, one.segment, one.first_offset)
            self._budget.release(sub_batch.cost)
        return callbacks

    def failed(self, sub_batches: Iterable[object], error: SmqError) -> Callbacks:
        """Fails these and nothing else: the producer goes on."""
        callbacks: Callbacks = []
        for sub_batch in sub_batches:
            assert isinstance(sub_batch, SubBatch)
            callbacks += sub_batch.delivery_state.failed(sub_batch.rows, error)
            self._budget.release(sub_batch.cost)
        return callbacks

    def unknown(self, sub_batches: Iterable[object]) -> Callbacks:
        """Fails sub-batches that may or may not be in a segment that has forgotten this producer."""
        callbacks: Callbacks = []
        for sub_batch in sub_batches:
            assert isinstance(sub_batch, SubBatch)
            error = DeliveryUnknown(
                f"{self._topic} does not remember producer {self._producer_id} any more, so "
                f"{sub_batch.batch.num_rows} messages may or may not have been stored. Send them again only if "
                "duplicates do no harm"
            )
            callbacks += self.failed([sub_batch], error)
        return callbacks
