"""What the brokers' reports say of the segments of a topic, for those who remove its files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.cleanup.retention import StartedSegment
from smq_operator.cleanup.stale_segments import UNSEALED_STATES
from smq_operator.cleanup.unreferenced_uploads import HostedSegment, WrittenUploads
from smq_proto.v1 import data_pb2 as pb


def started_segments(registry: BrokerRegistry, uid: str) -> set[StartedSegment]:
    """The segments that brokers report, without those that wait for their predecessors."""
    return {
        (broker.replica.incarnation, segment.segment)
        for broker in registry.all()
        for segment in broker.status.segments
        if segment.uid == uid and segment.state != pb.SegmentReport.WAITING
    }


def hosted_segments(registry: BrokerRegistry, uid: str) -> set[str]:
    """The segments of which a broker that may be alive has not reported the seal."""
    return {
        segment.segment
        for broker in registry.all()
        if broker.terminated is None
        for segment in broker.status.segments
        if segment.uid == uid and segment.state in UNSEALED_STATES
    }


def hosted_uids(registry: BrokerRegistry) -> set[str]:
    """The uids of topics of which a broker that may be alive hosts a segment."""
    return {
        segment.uid
        for broker in registry.all()
        if broker.terminated is None
        for segment in broker.status.segments
        if segment.state in UNSEALED_STATES
    }


def written_uploads(registry: BrokerRegistry, uid: str, clocks: ClockReading) -> dict[HostedSegment, WrittenUploads]:
    """What primaries say in reports that are newer than the last reading of the filer's time.

    Only since then no unnoticed suspension of this machine hides how old a report is.
    """
    return {
        (broker.replica.incarnation, it.segment): WrittenUploads(
            it.chain_end, date(max(0, clocks.filer - (clocks.leader - broker.status_at) - it.unwritten_upload_age))
        )
        for broker in registry.all()
        if broker.status_at >= clocks.measured_at
        for it in broker.status.segments
        if it.uid == uid and it.primary and it.unwritten_upload_age
    }


def date(microseconds: int) -> datetime:
    """A time that is given in microseconds since 1970."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
