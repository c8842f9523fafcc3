"""Writes references to a segment, as a producer whose sequences are fixed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.flight as fl

from smq_core.errors import SegmentSealed, Unavailable
from smq_core.model.atomic_publish import AppState
from smq_core.model.entities import Segment, Topic
from smq_core.model.reference import Reference
from smq_operator.brokers.dialer import OPEN, BrokerDialer
from smq_proto.channel_options import NO_PROXY
from smq_proto.error_conversion import error_from_pb
from smq_proto.flight import flight_errors, parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, reference_to_pb

# For one stream. After that all references are written again, and those that are in the log are repeats.
TIMEOUT_SECONDS = 8.0
# Its number on the stream, which has no other.
SESSION = 1
_OPTIONS = [NO_PROXY, ("grpc.use_local_subchannel_pool", 1)]


def publish_references(
    topic: Topic,
    segment: Segment,
    schema: pa.Schema,
    app: AppState,
    references: Sequence[Reference],
    *,
    dialer: BrokerDialer = OPEN,
    checked_upto: int = 0,
) -> int | None:
    """Writes reference ``n`` with sequence ``n``, and returns None when all of them are durable. Blocks.

    If the segment does not know the producer, it may have forgotten it together with others, the last of them before
    an offset. Unless the log was ``checked_upto`` that offset, nothing is written, and it is returned.

    Raises SegmentSealed, ReferenceRejected, ProducerFenced if a later publish of the app has begun, and Unavailable.
    Then some of the references may be in the log.
    """
    command = pb.PutOpen(
        protocol=PROTOCOL,
        incarnation=segment.primary.incarnation,
        uid=topic.uid,
        producers=pb.ProducersHello(lane=pb.LANE_BULK),
    )
    hello = pb.ProducerHello(producer=app.producer, epoch=app.epoch, instance=app.producer)
    descriptor = fl.FlightDescriptor.for_command(command.SerializeToString())
    options = fl.FlightCallOptions(timeout=TIMEOUT_SECONDS)
    with flight_errors(), dialer.connect(segment.primary, _OPTIONS) as client:
        writer, reader = client.do_put(descriptor, schema, options)
        try:
            opening = pb.ProducerFrame.Open(session=SESSION, segment=segment.name, producer=hello)
            writer.write_metadata(pb.ProducerFrame(opens=[opening]).SerializeToString())
            replies = _replies(reader, segment)
            opened = next(replies).opened
            if not opened.HasField("last_sequence") and opened.forgotten_upto > checked_upto:
                return int(opened.forgotten_upto)
            for sequence, reference in enumerate(references):
                frame = pb.ProducerFrame()
                frame.sub_batches.add(session=SESSION, sequence=sequence, reference=reference_to_pb(reference))
                writer.write_metadata(frame.SerializeToString())
            missing = set(range(len(references)))
            while missing:
                acks = next(replies).acks
                missing.difference_update(range(acks.first_sequence, acks.first_sequence + len(acks.first_offsets)))
            return None
        finally:
            with contextlib.suppress(pa.ArrowException, OSError):
                writer.done_writing()
                while reader.read() is not None:
                    pass
                writer.close()


def _replies(reader: fl.FlightMetadataReader, segment: Segment) -> Iterator[pb.ProducerReply]:
    """The replies that open or ack. Raises the error that the broker sent instead."""
    while (body := reader.read()) is not None:
        frame = parse(pb.ProducerFrameReply, body)
        if frame.HasField("error"):
            raise error_from_pb(frame.error)
        for it in frame.sessions:
            kind = it.reply.WhichOneof("reply")
            if kind == "sealed":
                raise SegmentSealed(f"{segment.name} is sealed", segment=segment.name)
            if kind in ("error", "rejected"):
                raise error_from_pb(it.reply.error if kind == "error" else it.reply.rejected.error)
            yield it.reply
    raise Unavailable(f"the stream to {segment.name} ended")
