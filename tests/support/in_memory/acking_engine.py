"""A producer whose engine acks what a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest

import smq.producer
from smq.producer import Producer
from smq.producing.batching.partitioning import SubBatch
from smq.producing.batching.row_batch import to_record_batch
from smq.producing.delivery_state import DeliveryState
from smq.producing.producer_runtime import ProducerRuntime
from smq.producing.uploads.uploaded_rows import UploadedRows
from smq.transport.dialer import DIRECT
from smq.transport.topic_view import TopicSnapshot
from smq_core.errors import Overloaded
from smq_core.model.entities import Layout, Topic, TopicSpec
from support.in_memory.producer_sessions import DrivenLanes


class AckingEngine:
    """Accepts every batch and acks it at the next offsets when the test calls ``answer``."""

    max_batch_bytes = 16 << 20
    max_undivided_bytes = 8 << 20
    full = False

    def __init__(
        self,
        view: object,
        producer_id: str,
        epoch: int,
        instance: str,
        timeout: float,
        max_in_flight: int,
        on_resolved: Callable[[], None],
        runtime: ProducerRuntime,
    ) -> None:
        self._on_resolved = on_resolved
        self.lock = threading.Lock()
        self.submitted: list[SubBatch] = []
        self._end = 0

    def reserve_now(self, nbytes: int) -> None: ...

    def reserve(self, nbytes: int, timeout: float) -> None: ...

    def release(self, nbytes: int) -> None: ...

    def wait_for_capacity(self, timeout: float) -> None:
        raise Overloaded("it never has any again")

    def large_value_done(self, large_value: object, error: object) -> None: ...

    def submit(self, sub_batch: SubBatch, _: object) -> None:
        self.submitted.append(sub_batch)

    def answer(self, sub_batch: SubBatch) -> None:
        with self.lock:
            calls = sub_batch.delivery_state.delivered(None, "segment", self._end)
            self._end += sub_batch.batch.num_rows
        for call in calls:
            call()
        self._on_resolved()

    def fail_batch(self, delivery_state: DeliveryState, cost: int, error: BaseException) -> None:
        with self.lock:
            calls = delivery_state.failed(None, error)
        for call in calls:
            call()

    def close(self) -> None:
        for sub_batch in self.submitted:
            if sub_batch.delivery_state.left:
                self.answer(sub_batch)


def engine(producer: Producer) -> AckingEngine:
    return producer._engine  # type: ignore[return-value]


@pytest.fixture
def open_producer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Producer]]:
    """Makes one with that linger, in seconds, and other options."""
    monkeypatch.setattr(smq.producer, "ProducerEngine", AckingEngine)
    snapshot = TopicSnapshot(
        Topic("default/t", "uid", TopicSpec(partitions=8)), Layout(topic="default/t", uid="uid", partitions=8)
    )
    view = SimpleNamespace(
        name="t",
        snapshot=snapshot,
        dialer=DIRECT,
        add_listener=lambda listener: None,
        remove_listener=lambda listener: None,
    )
    options = {"batch_bytes": 1 << 20, "max_in_flight": 1 << 20, "timeout": 5.0, "producer_id": None, "epoch": None}
    opened: list[Producer] = []
    runtime = ProducerRuntime(lanes=DrivenLanes())

    def open_one(linger: float, **more: object) -> Producer:
        opened.append(Producer(view, linger=linger, runtime=runtime, **(options | more)))  # type: ignore[arg-type]
        runtime.timers.begin_batch(time.monotonic(), linger)  # after a pause, the first batch would not linger
        return opened[-1]

    yield open_one
    for made in opened:
        engine(made).close()
        made.close()
    runtime.close()


def sent_batch(sub_batch: SubBatch) -> pa.RecordBatch:
    """What a broker would get."""
    assert not isinstance(sub_batch.batch, UploadedRows)
    return to_record_batch(sub_batch.batch)
