"""The thread that runs a stream of one segment sender alone."""

from __future__ import annotations

import logging
import threading

import pyarrow as pa

from smq.producing.batching.partitioning import SubBatch
from smq.producing.batching.row_batch import to_record_batch
from smq.producing.streams.segment_sender import NoBatch, SegmentSender, SenderPort
from smq.producing.streams.segment_stream import SegmentStream
from smq.producing.uploads.uploaded_rows import UploadedRows
from smq_core.errors import SmqError
from smq_core.producing.send_queue import SentSubBatch
from smq_storage.process.locks import requires_lock

log = logging.getLogger(__name__)

# The time after which an unused stream is closed. The next batch opens another one, or goes on a shared one.
IDLE_SECONDS = 10.0


class StreamThread:
    """Opens the stream, sends until it ends, and reports its end. Whoever makes it holds the producer's lock."""

    def __init__(self, producer: SenderPort, sender: SegmentSender, stream: SegmentStream) -> None:
        self.stream = stream
        self._lock = producer.lock
        self._sender = sender
        self._wake = threading.Condition(producer.lock)
        self._closes_idle_stream = producer.shares_streams
        name = f"smq-segment-sender-{stream.segment.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @requires_lock("_lock")
    def notify(self) -> None:
        self._wake.notify_all()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        failure: SmqError | None
        as_planned = False
        try:
            self.stream.open()
        except SmqError as error:
            failure = self.stream.end(graceful=False) or error
        else:
            as_planned = self._send()
            failure = self.stream.end(as_planned)
        self._sender.ended(self, failure, as_planned=as_planned)

    def _send(self) -> bool:
        """Sends until nothing more will come (True), or the stream should be cut (False)."""
        while True:
            with self._lock:
                sent = self._wait_for_batch()
            if sent is NoBatch.END:
                return True
            if isinstance(sent, NoBatch):
                return False
            try:
                self._write(sent)
            except (pa.ArrowException, OSError) as error:
                log.debug("write to %s failed: %s", self.stream.segment.name, error)
                return False

    @requires_lock("_lock")
    def _wait_for_batch(self) -> SentSubBatch | NoBatch:
        while (sent := self._sender.next_batch(self.stream)) is NoBatch.WAIT:
            woken = self._wake.wait(IDLE_SECONDS if self._closes_idle_stream else None)
            if not woken and self._sender.send_queue.idle:
                return NoBatch.END
        return sent

    def _write(self, sent: SentSubBatch) -> None:
        sub_batch = sent.sub_batch
        assert isinstance(sub_batch, SubBatch)
        if isinstance(sub_batch.batch, UploadedRows):
            self.stream.write_reference(sent.sequence, sub_batch.batch.reference(), sent.rejections)
        else:
            names = () if sub_batch.large_value is None else (sub_batch.large_value.value.name,)
            self.stream.write(sent.sequence, to_record_batch(sub_batch.batch), sent.rejections, names)
