"""The committed offsets of a group, by topic and partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from smq_core.kafka_groups.group_errors import GroupError
from smq_core.model.entities import Micros

MAX_METADATA_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """``offset`` is the next one to read. ``leader_epoch`` is -1 if the client did not say it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    at: Micros = 0


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """``topic`` is its full name, ``partitions`` has the offsets by partition."""

    topic: str
    partitions: Mapping[int, CommittedOffset] = field(default_factory=dict)


# By the topic's uid, so that a topic that was deleted and created anew begins without offsets.
GroupOffsets = Mapping[str, TopicOffsets]


class OffsetCommit(NamedTuple):
    uid: str
    topic: str
    partition: int
    committed: CommittedOffset


def check_commit(partition: int, partitions: int, metadata: str) -> GroupError:
    """Why an offset of a topic with that many partitions cannot be committed. The offset itself is not checked."""
    if not 0 <= partition < partitions:
        return GroupError.UNKNOWN_TOPIC_OR_PARTITION
    if len(metadata.encode(errors="surrogatepass")) > MAX_METADATA_BYTES:
        return GroupError.OFFSET_METADATA_TOO_LARGE
    return GroupError.NONE


def with_commits(offsets: GroupOffsets, commits: Iterable[OffsetCommit]) -> dict[str, TopicOffsets]:
    """The offsets after these commits, of which the last one of a partition counts.

    Offsets of a former topic of that name go.
    """
    changed: dict[str, dict[int, CommittedOffset]] = {}
    topics: dict[str, str] = {}
    for commit in commits:
        topics[commit.uid] = commit.topic
        changed.setdefault(commit.uid, {})[commit.partition] = commit.committed
    names = set(topics.values())
    kept = {uid: it for uid, it in offsets.items() if uid in topics or it.topic not in names}
    for uid, partitions in changed.items():
        before = kept.get(uid, TopicOffsets(topics[uid]))
        kept[uid] = replace(before, partitions={**before.partitions, **partitions})
    return kept


def without(offsets: GroupOffsets, is_gone: Callable[[str, int], bool]) -> dict[str, TopicOffsets]:
    """The offsets without those for which ``is_gone(uid, partition)``."""
    left = {
        uid: replace(it, partitions={at: one for at, one in it.partitions.items() if not is_gone(uid, at)})
        for uid, it in offsets.items()
    }
    return {uid: it for uid, it in left.items() if it.partitions}
