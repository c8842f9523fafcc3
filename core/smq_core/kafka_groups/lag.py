"""How many messages a group of Kafka clients has not read.

Files say where each partition ends. Of messages that are not in a file yet, a leader knows how many each segment has,
but not of which partitions. So they count for a group that reads all partitions of the segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from smq_core.model.keyspace import KeyRange


class UnwrittenMessages(NamedTuple):
    """How many messages of these partitions are not in a file."""

    partitions: KeyRange
    messages: int


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """``partitions`` has the Kafka offset after the last message in a file, ``unwritten`` the messages after those."""

    partitions: Mapping[int, int]
    unwritten: Sequence[UnwrittenMessages] = ()

    @property
    def messages(self) -> int:
        """All that there ever were."""
        return sum(self.partitions.values()) + sum(it.messages for it in self.unwritten)


def unread_messages(committed: Mapping[int, int], ends: TopicEnds) -> int:
    """Messages that a group with these offsets has not committed, in partitions of which it has committed one."""
    behind = {at: ends.partitions.get(at, 0) - offset for at, offset in committed.items()}
    unread = 0
    for of_segment in ends.unwritten:
        own = [at for at in behind if at in of_segment.partitions]
        filled = [at for at in ends.partitions if at in of_segment.partitions and ends.partitions[at]]
        if own and all(at in behind for at in filled):
            # A committed offset may be that of an unwritten message, and beyond the end in files.
            unread += max(0, sum(behind.pop(at) for at in own) + of_segment.messages)
    return unread + sum(max(0, it) for it in behind.values())
