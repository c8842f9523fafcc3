"""Sessions of a producer that the test drives: it sees what the producer sends, and sends the primary's replies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from smq.producer import Producer
from smq.producing.batching.partitioning import SubBatch
from smq.producing.batching.row_batch import to_record_batch
from smq.producing.callbacks import run_callbacks
from smq.producing.lanes.session import SessionOwner
from smq.producing.producer_runtime import ProducerRuntime
from smq.producing.uploads.uploaded_rows import UploadedRows
from smq_core.errors import SmqError
from smq_core.model.entities import Segment
from smq_core.model.reference import Reference
from smq_core.producing.producer_events import Tick
from smq_core.producing.segment_sender import NoBatch, SegmentSender
from smq_core.producing.send_queue import SentSubBatch
from smq_proto.v1 import data_pb2 as pb
from support.waiting import HANG_GUARD, eventually


class DrivenSession:
    """In place of a ProducerSession: ``written`` and ``batches`` have what the producer sent. It has its own thread."""

    opened_sessions: ClassVar[list[DrivenSession]] = []
    misfits: ClassVar[list[pa.RecordBatch]] = []
    """What had another schema than its lane. Flight refuses such a batch."""

    def __init__(
        self, segment: Segment, *, schema: pa.Schema, hello: pb.ProducerHello, owner: SessionOwner, session: int
    ) -> None:
        self.segment = segment
        self.identity = (hello.producer, hello.epoch, hello.instance)
        self.schema = schema
        self.written: list[int] = []
        self.batches: list[pa.RecordBatch] = []
        self.references: list[Reference] = []
        self.large_values: list[tuple[str, ...]] = []
        self.rejections: list[int] = []
        self.ended = threading.Event()
        self._owner = owner
        self._number = session
        self._wake = threading.Condition(owner.lock)
        self._broken = False
        self._failure: SmqError | None = None
        self.opened_sessions.append(self)
        threading.Thread(target=self._run, name="driven-session", daemon=True).start()

    def notify(self) -> None:
        self._wake.notify_all()

    # ---- the primary

    def reply(self, **kind: Any) -> None:
        self._owner.on_reply(self._number, pb.ProducerReply(**kind))

    def opened(self, **answer: int) -> None:
        self.reply(opened=pb.ProducerReply.Opened(max_batch_bytes=1 << 20, **answer))

    def ack(self, sequence: int, offset: int) -> None:
        self.reply(acks=pb.ProducerReply.Acks(first_sequence=sequence, first_offsets=[offset]))

    def break_off(self, failure: SmqError | None = None) -> None:
        with self._owner.lock:
            self._failure = failure
            self._broken = True
            self._wake.notify_all()
        self.ended.wait(HANG_GUARD)

    # ---- the lane

    def _run(self) -> None:
        while True:
            with self._owner.lock:
                sent = self._wait_for_batch()
            if sent is None:
                break
            self._write(sent)
        with self._owner.lock:
            is_planned = not self._broken
        self._owner.on_end(self._number, self._failure, is_planned=is_planned)
        self.ended.set()

    def _wait_for_batch(self) -> SentSubBatch | None:
        while not self._broken:
            sent = self._owner.next_batch(self._number)
            if sent is NoBatch.WAIT:
                self._wake.wait()
            else:
                return None if isinstance(sent, NoBatch) else sent
        return None

    def _write(self, sent: SentSubBatch) -> None:
        sub_batch = sent.sub_batch
        assert isinstance(sub_batch, SubBatch)
        self.rejections.append(sent.rejections)
        if isinstance(sub_batch.batch, UploadedRows):
            self.references.append(sub_batch.batch.reference())
        else:
            self.large_values.append(() if sub_batch.large_value is None else (sub_batch.large_value.value.name,))
            batch = to_record_batch(sub_batch.batch)
            if not batch.schema.equals(self.schema):
                self.misfits.append(batch)
            self.batches.append(batch)
        self.written.append(sent.sequence)


class DrivenLanes:
    """Opens DrivenSessions."""

    def open_session(
        self,
        segment: Segment,
        *,
        topic: str,
        uid: str,
        schema: pa.Schema,
        hello: pb.ProducerHello,
        owner: SessionOwner,
        session: int,
        is_bulk: bool,
    ) -> DrivenSession:
        return DrivenSession(segment, schema=schema, hello=hello, owner=owner, session=session)

    def close(self) -> None: ...


def session(number: int) -> DrivenSession:
    """The session that the producer opened as the n-th one."""
    eventually(lambda: len(DrivenSession.opened_sessions) > number, what=f"session {number}")
    return DrivenSession.opened_sessions[number]


def expire(producer: Producer, now: float) -> None:
    """What the producer does at that time (monotonic seconds), if it then looks for batches that are too old."""
    engine = producer._engine
    with engine.lock:
        engine._machine._expires_at = engine._machine._wakes_at = now
        callbacks = [call for it in engine._machine.handle(Tick(), now) for call in engine._carry_out(it)]
    run_callbacks(callbacks)


@pytest.fixture
def driven_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session has been opened so far, and each takes all batches."""
    monkeypatch.setattr(SegmentSender, "_belongs_on_other_lane", lambda *_: False)
    monkeypatch.setattr(DrivenSession, "opened_sessions", [])
    monkeypatch.setattr(DrivenSession, "misfits", [])


@contextmanager
def producer_of(
    view: Any, timeout: float = HANG_GUARD, max_inline_bytes: int | None = None, batch_bytes: int = 1 << 20
) -> Iterator[Producer]:
    """A producer with this view of its topic, which sends each message at once. Its sessions are driven."""
    runtime = ProducerRuntime(lanes=DrivenLanes())
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
    assert not DrivenSession.misfits
