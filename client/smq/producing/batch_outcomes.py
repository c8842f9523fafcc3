"""What a producer does with the outcome of sub-batches: their deliveries learn it, and their bytes are free again."""

from __future__ import annotations

from typing import TypeAlias

from smq.producing.batching.partitioning import SubBatch
from smq.producing.callbacks import Callbacks
from smq.producing.delivery_state import delivery_timeout
from smq.producing.in_flight_budget import InFlightBudget
from smq_core.errors import DeliveryTimeout, DeliveryUnknown, SmqError
from smq_core.producing.producer_instructions import ExpireSubBatch, FailSubBatch, ForgetSubBatch
from smq_core.producing.send_queue import DeliveredSubBatch

RowsInstruction: TypeAlias = DeliveredSubBatch | FailSubBatch | ForgetSubBatch | ExpireSubBatch


class BatchOutcomes:
    """The caller holds the producer's lock, and calls what is returned after it has released it.

    ``timeout`` is in seconds.
    """

    def __init__(self, topic: str, producer_id: str, timeout: float, budget: InFlightBudget) -> None:
        self._topic = topic
        self._producer_id = producer_id
        self._timeout = timeout
        self._budget = budget

    def apply(self, instruction: RowsInstruction) -> Callbacks:
        sub_batch = instruction.sub_batch
        assert isinstance(sub_batch, SubBatch)
        match instruction:
            case DeliveredSubBatch(segment, _, first_offset):
                self._budget.release(sub_batch.cost)
                return sub_batch.delivery_state.delivered(sub_batch.rows, segment, first_offset)
            case FailSubBatch(_, error):
                self._budget.release(sub_batch.cost)
                return sub_batch.delivery_state.failed(sub_batch.rows, error)
            case ForgetSubBatch():
                self._budget.release(sub_batch.cost)
                return sub_batch.delivery_state.failed(sub_batch.rows, self._unknown(sub_batch))
            case ExpireSubBatch(_, is_sent, cause):
                if not is_sent:
                    self._drop(sub_batch)
                return sub_batch.delivery_state.failed(sub_batch.rows, self._timed_out(sub_batch, cause))

    def _drop(self, sub_batch: SubBatch) -> None:
        large = sub_batch.large_value
        if large is not None and not large.uploaded:
            large.reserved = sub_batch.cost  # the upload still has the bytes
        else:
            self._budget.release(sub_batch.cost)

    def _timed_out(self, sub_batch: SubBatch, cause: SmqError | None) -> DeliveryTimeout:
        large = sub_batch.large_value
        if large is not None and not large.uploaded:
            return DeliveryTimeout(
                f"a value of {large.value.size} bytes could not be uploaded to the filer within {self._timeout} s, so "
                "its message is not in the log. Check the connection to the filer, or raise the producer's timeout"
            )
        return delivery_timeout(self._timeout, cause)

    def _unknown(self, sub_batch: SubBatch) -> DeliveryUnknown:
        return DeliveryUnknown(
            f"{self._topic} does not remember producer {self._producer_id} any more, so "
            f"{sub_batch.batch.num_rows} messages may or may not have been stored. Send them again only if "
            "duplicates do no harm"
        )
