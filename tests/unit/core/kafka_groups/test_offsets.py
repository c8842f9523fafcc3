from __future__ import annotations

import pytest

from smq_core.kafka_groups.coordinators import coordinator_of
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.offsets import (
    CommittedOffset,
    OffsetCommit,
    TopicOffsets,
    check_commit,
    with_commits,
    without,
)


def commit(uid: str, topic: str, partition: int, offset: int) -> OffsetCommit:
    return OffsetCommit(uid, topic, partition, CommittedOffset(offset))


def test_commits_change_their_partitions_only_and_the_last_one_counts() -> None:
    before = {"u1": TopicOffsets("default/a", {0: CommittedOffset(5), 1: CommittedOffset(6)})}
    after = with_commits(before, [commit("u1", "default/a", 1, 9), commit("u1", "default/a", 1, 7)])
    assert {at: it.offset for at, it in after["u1"].partitions.items()} == {0: 5, 1: 7}
    assert before["u1"].partitions[1].offset == 6


def test_a_topic_that_was_created_anew_begins_without_offsets() -> None:
    before = {"u1": TopicOffsets("default/a", {0: CommittedOffset(5)}), "u2": TopicOffsets("default/b")}
    after = with_commits(before, [commit("u3", "default/a", 1, 9)])
    assert set(after) == {"u2", "u3"} and set(after["u3"].partitions) == {1}


def test_offsets_are_removed_by_partition() -> None:
    before = with_commits(
        {}, [commit("u1", "default/a", 0, 1), commit("u1", "default/a", 1, 2), commit("u2", "b", 0, 3)]
    )
    after = without(before, lambda uid, partition: uid == "u2" or partition == 1)
    assert {uid: set(it.partitions) for uid, it in after.items()} == {"u1": {0}}


@pytest.mark.parametrize(
    ("partition", "metadata", "error"),
    [
        (0, "", GroupError.NONE),
        (7, "x" * 4096, GroupError.NONE),
        (8, "", GroupError.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, "", GroupError.UNKNOWN_TOPIC_OR_PARTITION),
        (0, "x" * 4097, GroupError.OFFSET_METADATA_TOO_LARGE),
        (0, "ü" * 2049, GroupError.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_what_can_be_committed(partition: int, metadata: str, error: GroupError) -> None:
    assert check_commit(partition, 8, metadata) is error


def test_a_node_that_ends_moves_its_own_groups_only() -> None:
    nodes = [10, 20, 30]
    before = {f"g{number}": coordinator_of(f"g{number}", nodes) for number in range(300)}
    after = {group: coordinator_of(group, [10, 30]) for group in before}
    assert {before[group] for group in before if before[group] != after[group]} == {20}
    assert all(sum(it == node for it in before.values()) > 60 for node in nodes)
    assert coordinator_of("g", []) is None
