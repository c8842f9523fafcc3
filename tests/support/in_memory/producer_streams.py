"""Streams of a producer that the test drives: it sees what the producer sends, and sends the primary's replies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from smq.producer import Producer
from smq.producing import engine
from smq.producing.producer_runtime import ProducerRuntime
from smq_core.model.entities import Segment
from smq_core.model.reference import Reference
from smq_proto.v1 import data_pb2 as pb
from support.waiting import HANG_GUARD, eventually


class DrivenStream:
    """In place of a SegmentStream: ``written`` and ``batches`` have what the producer sent."""

    opened_streams: ClassVar[list[DrivenStream]] = []
    misfits: ClassVar[list[pa.RecordBatch]] = []
    """What had another schema than its stream. Flight refuses such a batch."""

    def __init__(
        self,
        segment: Segment,
        uid: str,
        producer: str,
        epoch: int,
        instance: str,
        schema: pa.Schema,
        dialer: object,
        on_reply: Callable[..., None],
        on_end: Callable[..., None],
    ) -> None:
        self.segment = segment
        self.identity = (producer, epoch, instance)
        self.schema = schema
        self.written: list[int] = []
        self.batches: list[pa.RecordBatch] = []
        self.references: list[Reference] = []
        self.large_values: list[tuple[str, ...]] = []
        self.rejections: list[int] = []
        self.ended = threading.Event()
        self._on_reply, self._on_end = on_reply, on_end

    def open(self) -> None:
        self.opened_streams.append(self)

    def write_reference(self, sequence: int, reference: Reference, rejections: int) -> None:
        self.references.append(reference)
        self.rejections.append(rejections)
        self.written.append(sequence)

    def write(self, sequence: int, batch: pa.RecordBatch, rejections: int, large_values: Sequence[str] = ()) -> None:
        self.large_values.append(tuple(large_values))
        self.rejections.append(rejections)
        if not batch.schema.equals(self.schema):
            self.misfits.append(batch)
        self.batches.append(batch)
        self.written.append(sequence)

    def is_unresponsive(self, now: float) -> bool:
        return False

    def abort(self) -> None:
        self.ended.set()

    def end(self, graceful: bool) -> None:
        self.ended.set()

    # ---- the primary

    def reply(self, **kind: Any) -> None:
        self._on_reply(self, pb.ProducerReply(**kind))

    def opened(self, **answer: int) -> None:
        self.reply(opened=pb.ProducerReply.Opened(max_batch_bytes=1 << 20, **answer))

    def ack(self, sequence: int, offset: int) -> None:
        self.reply(acks=pb.ProducerReply.Acks(first_sequence=sequence, first_offsets=[offset]))

    def break_off(self) -> None:
        self._on_end(self)


def stream(number: int) -> DrivenStream:
    """The stream that the producer opened as the n-th one."""
    eventually(lambda: len(DrivenStream.opened_streams) > number, what=f"stream {number}")
    return DrivenStream.opened_streams[number]


@pytest.fixture
def driven_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers open DrivenStreams, and none has been opened so far."""
    monkeypatch.setattr(engine, "SegmentStream", DrivenStream)
    monkeypatch.setattr(DrivenStream, "opened_streams", [])
    monkeypatch.setattr(DrivenStream, "misfits", [])


@contextmanager
def producer_of(
    view: Any, timeout: float = HANG_GUARD, max_inline_bytes: int | None = None, batch_bytes: int = 1 << 20
) -> Iterator[Producer]:
    """A producer with this view of its topic, which sends each message at once."""
    runtime = ProducerRuntime(share_streams=False)
    made = Producer(
        view,
        linger=0,
        batch_bytes=batch_bytes,
        max_in_flight=1 << 20,
        timeout=timeout,
        producer_id=None,
        epoch=None,
        max_inline_bytes=max_inline_bytes,
        runtime=runtime,
    )
    yield made
    made._large_values.close()
    made._engine.close()
    runtime.close()
    assert not DrivenStream.misfits
