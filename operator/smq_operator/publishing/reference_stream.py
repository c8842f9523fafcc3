"""Writes references to a segment, as a producer whose sequences are fixed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.flight as fl

from smq_core.errors import SegmentSealed, SmqError, Unavailable
from smq_core.model.atomic_publish import AppState
from smq_core.model.entities import Segment, Topic
from smq_core.model.reference import Reference
from smq_proto.channel_options import NO_PROXY
from smq_proto.flight import flight_errors, parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, error_from_pb, reference_to_pb

# For one stream. After that all references are written again, and those that are in the log are repeats.
TIMEOUT_SECONDS = 8.0
_OPTIONS = [NO_PROXY, ("grpc.use_local_subchannel_pool", 1)]


def publish_references(
    topic: Topic,
    segment: Segment,
    schema: pa.Schema,
    app: AppState,
    references: Sequence[Reference],
    *,
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
        segment=segment.name,
        incarnation=segment.primary.incarnation,
        uid=topic.uid,
        producer=pb.ProducerHello(producer=app.producer, epoch=app.epoch, instance=app.producer),
    )
    descriptor = fl.FlightDescriptor.for_command(command.SerializeToString())
    options = fl.FlightCallOptions(timeout=TIMEOUT_SECONDS)
    with flight_errors(), fl.connect(f"grpc://{segment.primary.address}", generic_options=_OPTIONS) as client:
        writer, reader = client.do_put(descriptor, schema, options)
        try:
            opened = _next(reader, segment).opened
            if not opened.HasField("last_sequence") and opened.forgotten_upto > checked_upto:
                return int(opened.forgotten_upto)
            for sequence, reference in enumerate(references):
                header = pb.ProducerBatch(sequence=sequence, reference=reference_to_pb(reference))
                writer.write_metadata(header.SerializeToString())
            missing = set(range(len(references)))
            while missing:
                acks = _next(reader, segment).acks
                missing.difference_update(range(acks.first_sequence, acks.first_sequence + len(acks.first_offsets)))
            return None
        finally:
            with contextlib.suppress(pa.ArrowException, OSError):
                writer.done_writing()
                while reader.read() is not None:
                    pass
                writer.close()


def _next(reader: fl.FlightMetadataReader, segment: Segment) -> pb.ProducerReply:
    """The next reply that opens or acks. Raises the error that the broker sent instead."""
    while True:
        body = reader.read()
        if body is None:
            raise Unavailable(f"the stream to {segment.name} ended")
        reply = parse(pb.ProducerReply, body)
        kind = reply.WhichOneof("reply")
        if kind == "sealed":
            raise SegmentSealed(f"{segment.name} is sealed", segment=segment.name)
        if kind in ("error", "rejected"):
            error: SmqError = error_from_pb(reply.error if kind == "error" else reply.rejected.error)
            raise error
        if kind in ("opened", "acks"):
            return reply
