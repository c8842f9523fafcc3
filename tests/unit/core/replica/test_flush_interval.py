"""A segment with little traffic writes fewer chunks: its flush interval stretches, and nothing else waits for that."""

from itertools import pairwise

import pytest

from smq_core.model.entities import SECOND, Durability, Micros, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.model.reference import Reference
from smq_core.replica.flush_interval import WORTHWHILE_BYTES, flush_interval
from smq_core.replica.log_entries import BatchId, ChunkWrite, IncomingBatch, ReplicaConfig
from smq_core.replica.segment_replica import SegmentReplica

INTERVAL, MAX = 10 * SECOND, 120 * SECOND


def primary(max_interval: Micros | None = MAX, flush_bytes: int = 32 << 20, credit: int = 1 << 30) -> SegmentReplica:
    config = ReplicaConfig(
        segment="s",
        range=KeyRange(0, 8),
        incarnation="p",
        replicas=("p", "f"),
        durability=Durability.REPLICATED,
        flush_bytes=flush_bytes,
        flush_interval=INTERVAL,
        flush_max_interval=max_interval,
    )
    replica = SegmentReplica(config)
    replica.follower_connected("f", 0, credit)
    return replica


def append(replica: SegmentReplica, nbytes: int, now: Micros, reference: Reference | None = None) -> None:
    id_ = BatchId("a", 0, replica.counters.batches)
    replica.append(
        "stream",
        IncomingBatch(
            id=id_, rows=1, nbytes=nbytes, partition_min=0, partition_max=7, payload=None, reference=reference
        ),
        now,
    )
    replica.follower_acked("f", replica.end)


def chunks_at(replica: SegmentReplica, nbytes: int, every: Micros, upto: Micros) -> list[tuple[Micros, ChunkWrite]]:
    """When which chunks are written, if a batch of ``nbytes`` comes regularly."""
    found = []
    for now in range(0, upto, SECOND // 10):
        if now % every == 0:
            append(replica, nbytes, now)
        if (chunk := replica.next_chunk(now)) is not None:
            replica.chunk_written(chunk)
            found.append((now, chunk))
    return found


def test_without_a_longest_interval_nothing_waits_longer() -> None:
    assert flush_interval(1, INTERVAL, None) == INTERVAL
    assert [now for now, _ in chunks_at(primary(None), 100, 15 * SECOND, 60 * SECOND)] == [
        10 * SECOND,
        25 * SECOND,
        40 * SECOND,
        55 * SECOND,
    ]


def test_a_longest_interval_below_the_interval_shortens_nothing() -> None:
    assert flush_interval(1, INTERVAL, SECOND) == INTERVAL
    assert TopicSpec(flush_interval=INTERVAL, flush_max_interval=SECOND).longest_flush_interval == INTERVAL


def test_what_a_loss_of_all_replicas_can_cost_is_the_longest_interval() -> None:
    assert TopicSpec(flush_interval=INTERVAL).longest_flush_interval == INTERVAL
    assert TopicSpec(flush_interval=INTERVAL, flush_max_interval=MAX).longest_flush_interval == MAX


def test_no_message_waits_longer_than_the_longest_interval() -> None:
    written = chunks_at(primary(), 100, 7 * SECOND, 600 * SECOND)
    assert all(now - entry.appended <= MAX for now, chunk in written for entry in chunk.entries)
    assert [len(chunk.entries) for _, chunk in written[:3]] == [18, 18, 18]


@pytest.mark.parametrize(
    ("bytes_per_second", "seconds"),
    [(100, 120), (WORTHWHILE_BYTES // 120 - 1, 120), (WORTHWHILE_BYTES // 40, 40), (WORTHWHILE_BYTES // 10 + 1, 10)],
)
def test_the_interval_stretches_with_the_rate(bytes_per_second: int, seconds: int) -> None:
    written = chunks_at(primary(), bytes_per_second, SECOND, 1000 * SECOND)
    between = {(after[0] - before[0]) // SECOND for before, after in pairwise(written)}
    assert between <= {seconds, seconds + 1}, "a second more is until the next message after a chunk"


def test_a_full_tail_does_not_wait() -> None:
    replica = primary(flush_bytes=1000)
    append(replica, 999, 0)
    assert replica.next_chunk(0) is None
    append(replica, 1, 0)
    assert replica.next_chunk(0) is not None


def test_a_tail_of_half_the_credit_does_not_wait() -> None:
    replica = primary(credit=1000)
    append(replica, 500, 0)
    assert replica.next_chunk(0) is not None


def test_a_requested_chunk_does_not_wait() -> None:
    replica = primary()
    append(replica, 1, 0)
    assert replica.next_chunk(0) is None
    assert replica.next_chunk(0, force=True) is not None


def test_a_reference_does_not_wait() -> None:
    replica = primary()
    append(replica, 1, 0)
    append(
        replica,
        1,
        0,
        Reference(
            upload="u",
            etag="etag",
            first_row=0,
            rows=1,
            bytes=100,
            partition_min=0,
            partition_max=7,
            timestamp_min=1,
            timestamp_max=1,
        ),
    )
    ends = []
    while (chunk := replica.next_chunk(0)) is not None:
        replica.chunk_written(chunk)
        ends.append(chunk.end)
    assert ends == [1, 2], "nor do the entries before it"


def test_an_empty_tail_has_no_age() -> None:
    assert not primary().tail_is_aged(1 << 60)
