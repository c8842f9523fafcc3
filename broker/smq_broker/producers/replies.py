"""What a primary replies to a producer: acks, rejections, the segment's outcome, or why the session ends."""

from __future__ import annotations

from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import ReferenceRejected
from smq_core.replica.log_entries import Ack
from smq_core.replica.producer_sessions import OpenedProducer
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_to_pb

# The reply for a repeated batch that is in the log, but whose first offset is not kept any more.
UNKNOWN_OFFSET = (1 << 64) - 1


def opened_reply(opened: OpenedProducer, max_batch_bytes: int) -> pb.ProducerReply:
    return pb.ProducerReply(
        opened=pb.ProducerReply.Opened(
            last_sequence=opened.last_sequence,
            max_batch_bytes=max_batch_bytes,
            end=opened.end,
            forgotten_upto=opened.forgotten_upto,
        )
    )


def final_reply(hosted: HostedSegment, producer: str) -> pb.ProducerReply | None:
    """The last reply, once the segment is sealed or its topic is deleted; None before."""
    machine = hosted.machine
    if hosted.deleted and machine.state in (ReplicaState.FENCED, ReplicaState.SEALED):
        return pb.ProducerReply(error=error_to_pb(hosted.topic_deleted_error()))
    if machine.state is not ReplicaState.SEALED:
        return None
    assert machine.outcome is not None
    return pb.ProducerReply(sealed=outcome_to_pb(machine.outcome, only=producer, successors=hosted.successors))


def rejected_reply(sequence: int, error: ReferenceRejected) -> pb.ProducerReply:
    return pb.ProducerReply(rejected=pb.ProducerReply.Rejected(sequence=sequence, error=error_to_pb(error)))


def group_acks(acks: list[Ack]) -> list[pb.ProducerReply]:
    """Groups acks of consecutive sequences into one reply each."""
    replies: list[pb.ProducerReply] = []
    offsets: list[int] = []
    first = following = -1
    for ack in acks:
        if ack.id.sequence != following:
            if offsets:
                replies.append(_acks(first, offsets))
            first, offsets = ack.id.sequence, []
        offsets.append(UNKNOWN_OFFSET if ack.first_offset is None else ack.first_offset)
        following = ack.id.sequence + 1
    if offsets:
        replies.append(_acks(first, offsets))
    return replies


def _acks(first: int, offsets: list[int]) -> pb.ProducerReply:
    return pb.ProducerReply(acks=pb.ProducerReply.Acks(first_sequence=first, first_offsets=offsets))
