"""One Flight stream from a producer to the primary of a segment, with batches going out and replies coming in."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.flight as fl

from smq.transport.dialer import Dialer
from smq.transport.flight_channel import FlightChannel
from smq_core.errors import SmqError, Unavailable
from smq_core.model.entities import Segment
from smq_core.model.reference import Reference
from smq_proto.flight import flight_errors, from_flight, parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, reference_to_pb

log = logging.getLogger(__name__)

# The time without a reply from the primary after which the stream is aborted; heartbeats count as replies.
UNRESPONSIVE_AFTER_SECONDS = 2.0

# The first reply may take longer, because the primary of a successor waits for its predecessors' seals.
FIRST_REPLY_TIMEOUT_SECONDS = 3.5

OnReply = Callable[["SegmentStream", pb.ProducerReply], None]
OnEnd = Callable[["SegmentStream"], None]


class SegmentStream:
    """Call ``write`` from one thread only; another thread delivers the replies. Any thread may call ``abort``."""

    def __init__(
        self,
        segment: Segment,
        uid: str,
        producer: str,
        epoch: int,
        instance: str,
        schema: pa.Schema,
        dialer: Dialer,
        on_reply: OnReply,
        on_end: OnEnd,
    ) -> None:
        self.segment = segment
        self._dialer = dialer
        self._command = pb.PutOpen(
            protocol=PROTOCOL,
            segment=segment.name,
            incarnation=segment.primary.incarnation,
            uid=uid,
            producer=pb.ProducerHello(producer=producer, epoch=epoch, instance=instance),
        )
        self._schema = schema
        self._on_reply = on_reply
        self._on_end = on_end
        self._channel: FlightChannel | None = None
        self._writer: fl.FlightStreamWriter | None = None
        self._reader: threading.Thread | None = None
        self._aborted = False
        self._last_reply_at = time.monotonic()
        self._reply_timeout = FIRST_REPLY_TIMEOUT_SECONDS

    def open(self) -> None:
        """Connects; the primary's answer comes as the first reply. Raises Unavailable or the broker's error."""
        channel = FlightChannel.open(self.segment.primary.address, self._dialer)
        self._channel = channel
        self._last_reply_at = time.monotonic()
        if self._aborted:
            channel.abort()
        descriptor = fl.FlightDescriptor.for_command(self._command.SerializeToString())
        with flight_errors():
            self._writer, metadata = channel.client.do_put(descriptor, self._schema)
        self._reader = threading.Thread(
            target=self._read, args=(metadata,), name=f"smq-acks-{self.segment.name}", daemon=True
        )
        self._reader.start()

    def write(self, sequence: int, batch: pa.RecordBatch, rejections: int, large_values: Sequence[str] = ()) -> None:
        """Sends a batch. Raises an Arrow or OS error if the stream is broken.

        ``rejections`` is how many replies of this kind the producer has taken in on this stream. ``large_values`` names
        the objects with values of these rows.
        """
        assert self._writer is not None
        header = pb.ProducerBatch(sequence=sequence, rejections=rejections, large_values=large_values)
        self._writer.write_with_metadata(batch, header.SerializeToString())

    def write_reference(self, sequence: int, reference: Reference, rejections: int) -> None:
        """As ``write``, for rows of an upload."""
        assert self._writer is not None
        header = pb.ProducerBatch(sequence=sequence, rejections=rejections, reference=reference_to_pb(reference))
        self._writer.write_metadata(header.SerializeToString())

    def is_unresponsive(self, now: float) -> bool:
        """Whether the last reply is so old that the stream should be aborted."""
        return self._channel is not None and now - self._last_reply_at > self._reply_timeout

    def abort(self) -> None:
        """Cuts the connection, even while threads use it. Repeatable."""
        self._aborted = True
        if self._channel is not None:
            self._channel.abort()

    def end(self, graceful: bool) -> SmqError | None:
        """Ends the stream; called by the thread that writes. Returns the error that ended it, or None."""
        if self._channel is None:
            return None
        if not graceful:
            self.abort()
        error: SmqError | None = None
        if self._writer is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._writer.done_writing()
            if self._reader is not None:
                self._reader.join(UNRESPONSIVE_AFTER_SECONDS)
                if self._reader.is_alive():
                    self.abort()
                    self._reader.join()
            try:
                # Only after the reader has ended, because closing while another thread reads hangs.
                self._writer.close()
            except (pa.ArrowException, OSError) as failure:
                error = from_flight(failure)
        self._channel.close()
        return error

    def _read(self, metadata: fl.FlightMetadataReader) -> None:
        try:
            # None is the end, or an error that only a write or close reports.
            while (body := metadata.read()) is not None:
                self._last_reply_at, self._reply_timeout = time.monotonic(), UNRESPONSIVE_AFTER_SECONDS
                self._on_reply(self, parse(pb.ProducerReply, body))
        except (pa.ArrowException, OSError, Unavailable) as error:
            log.debug("the stream to %s broke: %s", self.segment.name, error)
        except Exception:
            log.exception("a reply of %s could not be handled", self.segment.name)
        finally:
            self._on_end(self)
