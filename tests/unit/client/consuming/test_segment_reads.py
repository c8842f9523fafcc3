"""What a reader knows of segments that have left its topic's history."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from smq.consuming.consumer_losses import ConsumerLosses
from smq.consuming.segment_choice import SegmentChoice
from smq.consuming.segment_reads import SegmentReads
from smq.transport.topic_view import SealedHistory
from smq_core.errors import DataLost
from support.in_memory.topic import TopicInMemory


class NoFetchers(dict[str, Any]):
    """A consumer that has opened no segment."""

    def __init__(self) -> None:
        self.paused: set[str] = set()


def test_the_end_of_a_segment_is_known_after_the_index_has_forgotten_it() -> None:
    """The index keeps the ends of the last segments that were removed, and a reader may have been slow."""
    topic = TopicInMemory()
    topic.seal(topic.first, 9, topic.segment(1, predecessors=(topic.first.name,)))
    changed = threading.Condition(threading.Lock())
    view: Any = topic
    fetchers: Any = NoFetchers()
    losses = ConsumerLosses(changed, in_group=False, skips=False)
    reads = SegmentReads(view=view, choice=SegmentChoice(), fetchers=fetchers, losses=losses, in_group=False)
    with changed:
        reads.update(topic.sealed_history(), topic.snapshot.layout)
        reads.progress.positions[topic.first.name] = 3
        reads.update(SealedHistory({}, ((0, 1),)), topic.snapshot.layout)
        with pytest.raises(DataLost) as caught:
            losses.raise_next()
    assert (caught.value.segment, caught.value.start, caught.value.stop) == (topic.first.name, 3, 9)
