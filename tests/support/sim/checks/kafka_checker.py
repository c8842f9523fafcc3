"""Checks what Kafka producers get: acks of what is durable, and the offsets that their records really have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from smq_core import invariants as inv
from smq_core.invariants import Message, Row, Violation
from smq_core.partition_invariant import CountedSegment
from smq_core.replica.log_entries import Ack, IncomingBatch

if TYPE_CHECKING:
    from support.sim.brokers.hosted_segment import SimulatedSegment
    from support.sim.checks.protocol_checker import ProtocolChecker


class KafkaChecker:
    def __init__(self, checker: ProtocolChecker) -> None:
        self.acks = 0
        self.repeats_of_predecessors = 0
        """Acks of batches that only a predecessor of the segment has."""
        self._checker = checker
        self._offsets: dict[Message, int] = {}

    def acked(self, hosted: SimulatedSegment, batch: IncomingBatch, ack: Ack) -> None:
        """A primary acks the batch, which is new or a repeat."""
        checker, name = self._checker, hosted.name
        end = checker.batch_ends.get(batch_key(name, batch))
        if end is None:
            self.repeats_of_predecessors += 1
        else:
            checker.must(inv.ack_is_covered(name, end, checker.durable_ends(name), checker.chain_ends.get(name, 0)))
            checker.acked_ends[name] = max(checker.acked_ends.get(name, 0), end)
        checker.world.note(hosted.process.name, name, f"acks {ack.id} at {ack.first_offset}")

    def acked_to(self, segment: str, messages: Sequence[Message], offset: int) -> None:
        """The producer received the ack of these messages from the segment. They are there or in one before."""
        checker = self._checker
        self.acks += 1
        for i, message in enumerate(messages):
            row = self._find(segment, message)
            if row is None:
                checker.must([Violation(1, segment, f"{message} is acked, and was never appended")])
                return
            checker.acked_rows[message] = row
            checker.acked_at[message] = checker.world.now
            self._offsets[message] = offset + i

    def _find(self, segment: str, message: Message) -> Row | None:
        for name in (segment, *self._checker.ancestors([segment])):
            for offset, found in self._checker.logs.get(name, {}).items():
                if found == message:
                    return Row(name, offset, message)
        return None

    def refused(self, producer: str, partition: int) -> None:
        """A log does not continue where the producer's acks end. That is right only after a loss."""
        lost = self._checker.losses.lost
        if not any(partition in self._checker.ranges[name] for name in lost):
            words = f"{producer} is refused in partition {partition}, and nothing is lost"
            self._checker.must([Violation(2, "", words)])

    def check(self, log: Iterable[Row], segments: Iterable[CountedSegment]) -> None:
        """Each acked record that is in the log has the offset of its ack."""
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        for row in log:
            rows[row.segment].append(row)
        for segment in segments:
            if not segment.recorded:
                continue
            upto, offsets = segment.recorded[-1]
            counts = {partition: segment.rows[:upto].count(partition) for partition in set(segment.rows)}
            following = {partition: offsets.end(partition) - count for partition, count in counts.items()}
            for row in rows[segment.name]:
                partition = row.message.partition
                own = self._offsets.get(row.message, following[partition])
                if own != following[partition]:
                    words = f"{row.message} was acked at {own} of its partition, it is at {following[partition]}"
                    self._checker.must([Violation(20, segment.name, words)])
                following[partition] += 1


def batch_key(segment: str, batch: IncomingBatch) -> tuple[object, ...]:
    """Identifies a batch in its segment. Kafka's sequences count the records of one partition."""
    return (segment, *batch.id, batch.partition_min)
