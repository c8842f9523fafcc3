"""One segment on one broker: what it accepts, what it rejects (and stays unchanged), when it acks, what it trims."""

import pytest

from smq_core.errors import NotOpenYet, OffsetMismatch, ProducerFenced, SegmentSealed, SequenceGap, WrongPartition
from smq_core.model.chunk_info import RECENT_BATCHES, SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import BatchId, IncomingBatch, ReplicaConfig, ReplicationMessage
from smq_core.replica.producer_sessions import OpenedProducer
from smq_core.replica.segment_replica import PendingReplication, ReplicaState, SegmentReplica


def replica(
    incarnation: str = "p",
    replicas: tuple[str, ...] = ("p", "f"),
    durability: Durability = Durability.REPLICATED,
    predecessors: tuple[str, ...] = (),
    flush_bytes: int = 1000,
) -> SegmentReplica:
    config = ReplicaConfig(
        segment="s",
        range=KeyRange(2, 6),
        incarnation=incarnation,
        replicas=replicas,
        durability=durability,
        predecessors=predecessors,
        flush_bytes=flush_bytes,
        flush_interval=100,
    )
    return SegmentReplica(config)


def stored() -> SegmentReplica:
    return replica(replicas=("p",), durability=Durability.STORED)


def batch(sequence: int, rows: int = 2, *, producer: str = "a", epoch: int = 0, span: tuple[int, int] = (2, 5)):
    return IncomingBatch(
        id=BatchId(producer, epoch, sequence),
        rows=rows,
        nbytes=rows * 10,
        partition_min=span[0],
        partition_max=span[1],
        payload=None,
    )


def filled(batches: int = 3) -> SegmentReplica:
    """A primary with batches of two rows, its follower connected at 0."""
    primary = replica()
    primary.follower_connected("f", 0, 1 << 20)
    for sequence in range(batches):
        primary.append("stream", batch(sequence), now=sequence)
    return primary


def acked(primary: SegmentReplica) -> list[tuple[int, int | None]]:
    due, acks = primary.has_due_acks(), primary.take_acks()
    assert due == bool(acks)
    return [(ack.id.sequence, ack.first_offset) for ack in acks]


# ---- what a primary takes and refuses


def test_batches_get_the_offsets_in_their_order():
    primary = filled()
    assert [(e.first, e.end) for e in primary.tail] == [(0, 2), (2, 4), (4, 6)]
    assert (primary.end, primary.tail_bytes, primary.counters.batches, primary.counters.messages) == (6, 60, 3, 6)


def test_a_gap_is_refused_with_the_sequence_that_is_next():
    primary = filled()
    with pytest.raises(SequenceGap) as raised:
        primary.append("stream", batch(4), now=9)
    assert raised.value.expected == 3
    assert primary.end == 6


def test_the_first_batch_of_a_producer_is_number_0():
    with pytest.raises(SequenceGap) as raised:
        filled().append("stream", batch(1, producer="b"), now=9)
    assert raised.value.expected == 0


def test_a_newer_epoch_begins_at_0_and_fences_the_older():
    primary = filled()
    primary.append("new", batch(0, epoch=1), now=9)
    for refused in (lambda: primary.append("old", batch(3), now=9), lambda: primary.open_producer("other", "a", 0)):
        with pytest.raises(ProducerFenced) as raised:
            refused()
        assert raised.value.epoch == 1
    assert primary.end == 8


@pytest.mark.parametrize("span", [(1, 3), (3, 6), (0, 9)])
def test_rows_outside_the_range_are_refused(span):
    primary = filled()
    with pytest.raises(WrongPartition):
        primary.append("stream", batch(3, span=span), now=9)
    assert primary.end == 6
    primary.append("stream", batch(3), now=9)


def test_a_waiting_segment_takes_nothing_until_the_last_predecessor_is_read():
    primary = replica(predecessors=("x", "y"))
    primary.predecessor_sealed(SealOutcome(segment="x", end=0))
    assert primary.state is ReplicaState.WAITING and primary.unread_predecessors == {"y"}
    assert primary.open_producer("stream", "a", 0) == OpenedProducer(None)
    with pytest.raises(NotOpenYet):
        primary.append("stream", batch(0), now=0)
    primary.predecessor_sealed(SealOutcome(segment="y", end=0))
    assert primary.append("stream", batch(0), now=0)


def test_a_follower_does_not_wait_for_predecessors():
    assert replica(incarnation="f", predecessors=("x",)).state is ReplicaState.OPEN


def test_a_fence_ends_the_wait_for_predecessors():
    primary = replica(predecessors=("x",))
    primary.fence()
    primary.predecessor_sealed(SealOutcome(segment="x", end=0))
    assert primary.state is ReplicaState.FENCED


def test_a_fenced_or_sealed_segment_takes_nothing():
    primary = filled()
    primary.fence()
    for _ in range(2):
        for refused in (
            lambda: primary.append("stream", batch(3), now=9),
            lambda: primary.open_producer("other", "a", 0),
        ):
            with pytest.raises(SegmentSealed):
                refused()
        primary.sealed(SealOutcome(segment="s", end=6))


def test_a_stream_opens_with_the_last_sequence_that_is_held_of_its_epoch():
    primary = filled()
    assert primary.open_producer("one", "a", 0) == OpenedProducer(2, end=6)
    assert primary.open_producer("two", "a", 1) == OpenedProducer(None, end=6)
    assert primary.open_producer("three", "b", 0) == OpenedProducer(None, end=6)


def test_time_never_goes_back():
    primary = filled(0)
    for sequence, now in enumerate((50, 20, 60)):
        primary.append("stream", batch(sequence), now=now)
    assert [e.appended for e in primary.tail] == [50, 50, 60]


# ---- acks


def test_replicated_is_acked_when_every_follower_holds_it():
    primary = replica(replicas=("p", "f", "g"))
    for follower in ("f", "g"):
        primary.follower_connected(follower, 0, 1 << 20)
    primary.append("stream", batch(0), now=0)
    primary.follower_acked("f", 2)
    assert acked(primary) == []
    primary.follower_acked("g", 2)
    assert acked(primary) == [(0, 0)]
    assert acked(primary) == []


def test_stored_is_acked_when_the_chunk_is_written():
    primary = stored()
    primary.append("stream", batch(0), now=0)
    chunk = primary.next_chunk(0)
    assert chunk is not None and acked(primary) == []
    primary.append("stream", batch(1), now=0)
    primary.chunk_written(chunk)
    assert acked(primary) == [(0, 0)] and primary.watermark == 2


def test_a_repeat_is_acked_when_the_watermark_covers_it_and_on_its_own_stream():
    primary = filled()
    assert primary.append("again", batch(1), now=9) is None
    assert primary.end == 6 and acked(primary) == []
    primary.follower_acked("f", 4)
    assert {(a.stream, a.id.sequence, a.first_offset) for a in primary.take_acks()} == {
        ("stream", 0, 0),
        ("stream", 1, 2),
        ("again", 1, 2),
    }


def test_a_repeat_of_long_ago_is_acked_without_an_offset():
    primary = filled(RECENT_BATCHES + 1)
    primary.follower_acked("f", primary.end)
    primary.take_acks()
    primary.append("again", batch(0), now=9)
    assert acked(primary) == [(0, None)]


def test_once_fenced_nothing_is_acked():
    primary = filled()
    primary.append("again", batch(0), now=9)
    primary.fence()
    primary.follower_acked("f", 6)
    assert acked(primary) == [] and primary.watermark == 0


def test_a_follower_cannot_ack_more_than_there_is():
    primary = filled()
    primary.follower_acked("f", 99)
    assert primary.watermark == 6
    primary.append("stream", batch(3), now=9)
    assert acked(primary) == [(0, 0), (1, 2), (2, 4)]


# ---- replication


def test_one_message_has_all_waiting_entries_and_the_next_only_changes():
    primary = filled()
    message = primary.replication_for("f")
    assert message is not None and [e.first for e in message.entries] == [0, 2, 4]
    assert primary.replication_for("f") is None
    primary.follower_acked("f", 6)
    assert primary.pending_replication("f") is PendingReplication.PROGRESS
    assert primary.replication_for("f") == ReplicationMessage(
        base_offset=6, entries=(), watermark=6, chain_end=0, credit=1 << 20
    )


def test_a_message_is_limited_but_never_empty_for_it():
    primary = filled()
    assert [len(primary.replication_for("f", max_bytes=n).entries) for n in (1, 45)] == [1, 2]


def test_a_reopened_stream_goes_on_at_the_followers_end():
    primary = filled()
    primary.replication_for("f")
    primary.follower_disconnected("f")
    assert primary.replication_for("f") is None
    primary.follower_connected("f", 2, 1 << 20)
    message = primary.replication_for("f")
    assert message is not None and message.base_offset == 2 and len(message.entries) == 2


@pytest.mark.parametrize("end", [1, 7])
def test_a_follower_whose_end_is_not_in_the_tail_is_refused(end):
    primary = filled()
    primary.follower_acked("f", 2)
    chunk = primary.next_chunk(0, force=True)
    assert chunk is not None
    primary.chunk_written(chunk)
    with pytest.raises(OffsetMismatch):
        primary.follower_connected("f", end, 1 << 20)


def test_a_follower_takes_only_what_begins_at_its_end_or_before():
    primary, follower = filled(), replica(incarnation="f")
    message = primary.replication_for("f")
    assert message is not None
    beyond = ReplicationMessage(base_offset=2, entries=message.entries[1:], watermark=0, chain_end=0)
    with pytest.raises(OffsetMismatch) as raised:
        follower.replicate(beyond)
    assert raised.value.end == 0 and follower.end == 0
    assert follower.replicate(message) == 6
    assert follower.replicate(beyond) == 6
    assert len(follower.tail) == 3


def test_a_fenced_follower_takes_nothing():
    primary, follower = filled(), replica(incarnation="f")
    message = primary.replication_for("f")
    assert message is not None
    follower.fence()
    with pytest.raises(SegmentSealed):
        follower.replicate(message)
    assert follower.end == 0


def test_a_follower_trims_to_the_chain_and_reads_to_the_watermark():
    primary, follower = filled(), replica(incarnation="f")
    message = primary.replication_for("f")
    assert message is not None
    follower.replicate(ReplicationMessage(base_offset=0, entries=message.entries, watermark=4, chain_end=2))
    assert (follower.tail_start, follower.watermark, follower.tail_bytes) == (2, 4, 40)
    assert [e.first for e in follower.readable(2)] == [2]
    assert list(follower.readable(4)) == []
    assert follower.state_at_chain_end().producers.snapshot()["a"].last_sequence == 0


def test_capacity_is_the_smallest_credit_less_the_tail():
    primary = replica(replicas=("p", "f", "g"))
    assert primary.available_bytes() == 0
    primary.follower_connected("f", 0, 100)
    primary.follower_connected("g", 0, 300)
    primary.append("stream", batch(0), now=0)
    assert primary.available_bytes() == 80
    assert stored().available_bytes() > 1 << 60


def test_a_lower_credit_is_kept_only_when_the_tail_is_within_it():
    primary = filled()
    message = primary.replication_for("f")
    assert message is not None and message.credit == 1 << 20
    primary.follower_granted("f", 50)
    primary.follower_acked("f", 6)
    news = primary.replication_for("f")
    assert news is not None and news.credit == 0, "60 bytes wait here, and may be on their way"
    assert primary.available_bytes() == -10
    chunk = primary.next_chunk(0, force=True)
    assert chunk is not None
    primary.chunk_written(chunk)
    news = primary.replication_for("f")
    assert news is not None and news.credit == 50 == primary.confirmed_credit("f")


# ---- chunks


def test_a_long_tail_is_written_as_several_chunks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("smq_core.replica.segment_replica.MAX_CHUNK_BYTES", 45)
    primary = replica(flush_bytes=10)
    primary.follower_connected("f", 0, 1 << 20)
    for sequence in range(5):
        primary.append("stream", batch(sequence), now=0)
    primary.follower_acked("f", 10)
    ends = []
    while chunk := primary.next_chunk(0, force=True):
        ends.append(chunk.end)
        primary.chunk_written(chunk)
    assert ends == [4, 8, 10]


def test_a_chunk_is_due_by_size_by_age_or_by_force_and_ends_at_the_watermark():
    primary = filled()
    assert primary.next_chunk(1000) is None, "nothing is durable"
    primary.follower_acked("f", 4)
    assert primary.next_chunk(99) is None
    chunk = primary.next_chunk(100)
    assert chunk is not None and (chunk.first, chunk.end, chunk.rows) == (0, 4, 4)
    assert chunk.producers["a"].last_sequence == 1


def test_one_chunk_at_a_time():
    primary = filled()
    primary.follower_acked("f", 4)
    chunk = primary.next_chunk(0, force=True)
    assert chunk is not None and primary.chunk_in_flight
    primary.follower_acked("f", 6)
    assert primary.next_chunk(0, force=True) is None
    primary.chunk_written(chunk)
    following = primary.next_chunk(0, force=True)
    assert following is not None and following.first == 4


def test_a_chunk_that_failed_is_due_again():
    primary = filled()
    primary.follower_acked("f", 4)
    chunk = primary.next_chunk(0, force=True)
    primary.chunk_failed()
    assert primary.next_chunk(0, force=True) == chunk and primary.chain_end == 0


def test_a_chunk_whose_name_is_taken_fences():
    primary = filled()
    primary.follower_acked("f", 4)
    primary.next_chunk(0, force=True)
    primary.chunk_conflict()
    assert primary.state is ReplicaState.FENCED and not primary.chunk_in_flight
    assert primary.next_chunk(0, force=True) is None


def test_a_follower_writes_no_chunks():
    primary, follower = filled(), replica(incarnation="f")
    message = primary.replication_for("f")
    assert message is not None
    follower.replicate(ReplicationMessage(base_offset=0, entries=message.entries, watermark=6, chain_end=0))
    assert follower.next_chunk(1 << 40, force=True) is None


def test_the_grant_limits_what_is_kept_before_a_flush():
    primary = replica()
    assert primary.flush_threshold() == 1000
    primary.follower_connected("f", 0, 100)
    assert primary.flush_threshold() == 50


def test_a_chunk_in_flight_counts_for_a_fenced_primary():
    """The sealer begins where the chain ends."""
    primary = filled()
    primary.follower_acked("f", 4)
    chunk = primary.next_chunk(0, force=True)
    assert chunk is not None
    primary.fence()
    primary.chunk_written(chunk)
    assert primary.chain_end == 4 and primary.state is ReplicaState.FENCED


# ---- the end


def test_a_sealed_replica_drops_the_tail_and_keeps_the_outcome():
    primary = filled()
    primary.fence()
    primary.sealed(SealOutcome(segment="s", end=6))
    assert (primary.state, primary.tail_bytes, len(primary.tail)) == (ReplicaState.SEALED, 0, 0)
    assert primary.outcome == SealOutcome(segment="s", end=6)
    assert list(primary.readable(0)) == [] and primary.take_acks() == []
