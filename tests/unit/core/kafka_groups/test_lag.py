"""How many messages a group of Kafka clients has not read, with and without messages that are in no file yet."""

from __future__ import annotations

from smq_core.kafka_groups.lag import TopicEnds, UnwrittenMessages, unread_messages
from smq_core.model.keyspace import KeyRange


def ends(*of_partitions: int, unwritten: dict[tuple[int, int], int] | None = None) -> TopicEnds:
    more = [UnwrittenMessages(KeyRange(*range_), count) for range_, count in (unwritten or {}).items()]
    return TopicEnds(dict(enumerate(of_partitions)), more)


def test_messages_in_files_count_for_partitions_with_a_committed_offset() -> None:
    assert unread_messages({0: 3, 1: 4}, ends(10, 4, 100)) == 7
    assert unread_messages({0: 12}, ends(10)) == 0, "it has read beyond the file"
    assert unread_messages({7: 0}, ends(10)) == 0, "a partition that is not there"


def test_unwritten_messages_count_for_a_group_that_reads_all_partitions_of_their_segment() -> None:
    topic = ends(10, 4, 100, unwritten={(0, 2): 5, (2, 3): 50})
    assert unread_messages({0: 10, 1: 4}, topic) == 5
    assert unread_messages({0: 10}, topic) == 0, "nobody knows how many are of partition 0"
    assert unread_messages({0: 12, 1: 4}, topic) == 3, "it has read two of them"
    assert unread_messages({0: 10, 1: 4, 2: 100}, topic) == 55
    assert unread_messages({0: 11, 1: 9}, topic) == 0


def test_a_partition_without_messages_in_files_needs_no_offset() -> None:
    assert unread_messages({0: 2}, ends(2, 0, unwritten={(0, 2): 3})) == 3


def test_what_a_group_is_ahead_in_one_segment_hides_nothing_of_another() -> None:
    assert unread_messages({0: 100, 1: 0}, ends(10, 7, unwritten={(0, 1): 1, (1, 2): 1})) == 8


def test_all_messages_of_a_topic_are_counted() -> None:
    assert ends(3, 4, unwritten={(0, 2): 5}).messages == 12
