"""One Flight stream from a producer to the primary of a segment: batches out, replies in."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.flight as fl

from smq.channel import Channel
from smq.network import Network
from smq_core.errors import SmqError, Unavailable
from smq_core.model import Segment
from smq_proto.flight import flight_errors, from_flight, parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL

log = logging.getLogger("smq")

SILENT_AFTER = 2.0
"""Seconds without any word from the primary, heartbeats included, after which it is given up."""

FIRST_WORD_WITHIN = 3.5
"""The first reply may take longer: the primary of a successor waits for its predecessors' seals."""

Reply = Callable[["SegmentStream", pb.ProducerReply], None]
Ended = Callable[["SegmentStream"], None]


class SegmentStream:
    """``write`` belongs to one thread; replies are handed over in another, ``abort`` may come from any."""

    def __init__(
        self,
        segment: Segment,
        uid: str,
        producer: str,
        epoch: int,
        schema: pa.Schema,
        network: Network,
        on_reply: Reply,
        on_end: Ended,
    ) -> None:
        self.segment = segment
        self._network = network
        self._command = pb.PutOpen(
            protocol=PROTOCOL,
            segment=segment.name,
            incarnation=segment.primary.incarnation,
            uid=uid,
            producer=pb.ProducerHello(producer=producer, epoch=epoch),
        )
        self._schema = schema
        self._on_reply = on_reply
        self._on_end = on_end
        self._channel: Channel | None = None
        self._writer: fl.FlightStreamWriter | None = None
        self._reader: threading.Thread | None = None
        self._aborted = False
        self._heard = time.monotonic()
        self._patience = FIRST_WORD_WITHIN

    def open(self) -> None:
        """Connects; what the primary says comes as the first reply. Raises Unavailable or what the broker answered."""
        channel = Channel.open(self.segment.primary.address, self._network)
        self._channel = channel
        self._heard = time.monotonic()
        if self._aborted:
            channel.abort()
        descriptor = fl.FlightDescriptor.for_command(self._command.SerializeToString())
        with flight_errors():
            self._writer, metadata = channel.client.do_put(descriptor, self._schema)
        self._reader = threading.Thread(
            target=self._read, args=(metadata,), name=f"smq-acks-{self.segment.name}", daemon=True
        )
        self._reader.start()

    def write(self, sequence: int, batch: pa.RecordBatch) -> None:
        """Raises an Arrow or OS error when the stream is broken."""
        assert self._writer is not None
        self._writer.write_with_metadata(batch, pb.ProducerBatch(sequence=sequence).SerializeToString())

    def silent(self, now: float) -> bool:
        """Whether nothing was heard for so long that the stream should be given up."""
        return self._channel is not None and now - self._heard > self._patience

    def abort(self) -> None:
        """Cuts the connection, whatever the threads are doing. Repeatable."""
        self._aborted = True
        if self._channel is not None:
            self._channel.abort()

    def end(self, graceful: bool) -> SmqError | None:
        """Ends the stream, by the thread that writes. Returns the error it ended with, None when it ended well."""
        if self._channel is None:
            return None
        if not graceful:
            self.abort()
        error: SmqError | None = None
        if self._writer is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._writer.done_writing()
            if self._reader is not None:
                self._reader.join(SILENT_AFTER)
                if self._reader.is_alive():
                    self.abort()
                    self._reader.join()
            try:
                # Only after the reader's end: closing while another thread reads hangs.
                self._writer.close()
            except (pa.ArrowException, OSError) as failure:
                error = from_flight(failure)
        self._channel.close()
        return error

    def _read(self, metadata: fl.FlightMetadataReader) -> None:
        try:
            # None is the end, or an error that only writing or closing tells.
            while (body := metadata.read()) is not None:
                self._heard, self._patience = time.monotonic(), SILENT_AFTER
                self._on_reply(self, parse(pb.ProducerReply, body))
        except (pa.ArrowException, OSError, Unavailable) as error:
            log.debug("the stream to %s broke: %s", self.segment.name, error)
        except Exception:
            log.exception("a reply of %s could not be used", self.segment.name)
        finally:
            self._on_end(self)
