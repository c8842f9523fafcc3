"""The broker's status, as it goes into reports to the leader and into answers to status requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from smq_broker.journal.disk_activity import DiskActivity
from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.recovery.recovered_logs import RecoveredLogs
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import Unavailable
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.enums import REPLICA_STATE
from smq_proto.v1 import data_pb2 as pb

# A disk that needs longer for one operation of a journal does not answer. A slow one may need some seconds for a
# large batch.
MAX_DISK_SECONDS = 5.0
# An operation that ends so soon was only seen late, for example because this process was paused.
CONFIRM_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatusReporter:
    """``broker`` is the broker's name."""

    broker: str
    registry: SegmentRegistry
    memory: MemoryAccounting
    recovered: RecoveredLogs
    disk: DiskActivity
    sleep: Callable[[float], None] = time.sleep

    def status(self) -> pb.BrokerStatus:
        """Raises Unavailable while the disk of the journals does not answer.

        A segment whose operation does not end acks nothing, and others soon follow. So this broker must not count as
        alive.
        """
        self._check_disk()
        hosted = self.registry.all()
        segments = [segment_report(it) for it in (*hosted, *self.recovered.acked_beyond_end())]
        now = time.monotonic()
        # After the fence the sealer writes, and nobody clears what the flusher met before.
        open_ = [it for it in hosted if it.machine.state is ReplicaState.OPEN]
        failing = [it for it in (segment.filer_failure.lasting(now) for segment in open_) if it is not None]
        since, problem = min(failing, default=(now, ""))
        return pb.BrokerStatus(
            filer_problem=problem,
            filer_failing_seconds=now - since,
            broker=self.broker,
            incarnation=self.registry.incarnation,
            draining=self.registry.draining,
            tail_bytes=sum(s.tail_bytes for s in segments),
            memory_limit=self.memory.limit,
            segments=segments,
            journal_problem=_journal_problem(hosted),
        )

    def _check_disk(self) -> None:
        oldest = self.disk.oldest()
        if self.disk.seconds(oldest) <= MAX_DISK_SECONDS:
            return
        self.sleep(CONFIRM_SECONDS)
        if self.disk.oldest() == oldest:
            raise Unavailable(
                f"the disk of this broker's journal has not answered for {self.disk.seconds(oldest):.0f} s. The leader "
                "moves its segments to other brokers if there are any: look at the disk, or delete the Pod if it does "
                "not recover"
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
    upload_age = hosted.unwritten_upload_age() if hosted.is_primary else 0  # before ``chain_end`` is read
    return pb.SegmentReport(
        topic=hosted.topic.name,
        uid=hosted.topic.uid,
        segment=hosted.name,
        primary=hosted.is_primary,
        state=REPLICA_STATE.value(machine.state),
        end=machine.end,
        watermark=machine.watermark,
        chain_end=machine.chain_end,
        tail_bytes=machine.tail_bytes,
        messages=machine.counters.messages,
        bytes=hosted.bytes_in,
        batches=machine.counters.batches,
        histogram=hosted.histogram.slices if hosted.is_primary else (),
        unwritten_upload_age=upload_age,
        stalled_seconds=hosted.stalled_seconds() if hosted.is_primary else 0.0,
    )
