"""The broker's status, as it goes into reports to the leader and into answers to status requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.recovery.recovered_logs import RecoveredLogs
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.registry import SegmentRegistry
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb


@dataclass(frozen=True, slots=True)
class BrokerStatusReporter:
    """``broker`` is the broker's name."""

    broker: str
    registry: SegmentRegistry
    memory: MemoryAccounting
    recovered: RecoveredLogs

    def status(self) -> pb.BrokerStatus:
        hosted = self.registry.all()
        segments = [segment_report(it) for it in (*hosted, *self.recovered.acked_beyond_end())]
        return pb.BrokerStatus(
            broker=self.broker,
            incarnation=self.registry.incarnation,
            draining=self.registry.draining,
            tail_bytes=sum(s.tail_bytes for s in segments),
            memory_limit=self.memory.limit,
            segments=segments,
            journal_problem=_journal_problem(hosted),
        )

    def recovered_incarnations(self) -> list[str]:
        """The former incarnations in whose place this process seals segments."""
        return self.recovered.incarnations()


def _journal_problem(hosted: Iterable[HostedSegment]) -> str:
    """Why segments have no journal, although they should; empty if all have theirs."""
    problems = [
        it.journal_problem for it in hosted if it.journal_problem and it.machine.state is not ReplicaState.SEALED
    ]
    return f"{len(problems)} segments continue without a journal: {problems[-1]}" if problems else ""


def segment_report(hosted: HostedSegment) -> pb.SegmentReport:
    """``bytes`` are those of messages as Arrow holds them; ``tail_bytes`` includes the overhead of each entry."""
    machine = hosted.machine
    return pb.SegmentReport(
        topic=hosted.topic.name,
        uid=hosted.topic.uid,
        segment=hosted.name,
        primary=hosted.is_primary,
        state=machine.state.value,
        end=machine.end,
        watermark=machine.watermark,
        chain_end=machine.chain_end,
        tail_bytes=machine.tail_bytes,
        messages=machine.counters.messages,
        bytes=hosted.bytes_in,
        batches=machine.counters.batches,
        histogram=hosted.histogram.slices if hosted.is_primary else (),
    )
