"""What a consumer reports of messages that were lost with all replicas."""

from __future__ import annotations

import threading

import pytest

from smq.consumer import Consumer
from smq.consuming.consumer_losses import ConsumerLosses
from smq.consuming.fetching.prefetch_buffer import FetchedLoss, SegmentEnd
from smq.consuming.groups import group_losses
from smq.consuming.reader_losses import loss_for_reader
from smq_core.errors import (
    DataLost,
    Unavailable,
)
from smq_core.model.loss import Loss
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import groups_pb2
from support.in_memory.consumer_bench import Bench, offsets, refreshed
from support.in_memory.topic import PARTITIONS
from support.waiting import eventually


def test_a_running_member_learns_of_a_loss_before_the_groups_last_commit() -> None:
    """Another member may have committed since. Only a new member leaves out what its group has passed so."""
    changed = threading.Condition(threading.Lock())
    running, new = (ConsumerLosses(changed, in_group=True, skips=False) for _ in range(2))
    lost = groups_pb2.GroupPositions.SegmentLoss(segment="s", loss=pb.Loss(start=0, stop=5), acknowledged=True)
    passed = groups_pb2.GroupPositions(lost=[lost])
    with changed:
        running.record_of_group(groups_pb2.GroupPositions(), lambda segment: 0)
        for losses in (running, new):
            losses.record_of_group(passed, lambda segment: 0)
        assert not new.pending
        with pytest.raises(DataLost) as caught:
            running.raise_next()
    assert (caught.value.start, caught.value.stop) == (0, 5)


# ---- losses with all replicas

LOST = {"lost": Loss(3, 5, at_least=True)}


def loss(consumer: Consumer) -> tuple[str, int, int | None, bool]:
    """The next loss that is raised."""
    with pytest.raises(DataLost) as caught:
        consumer.poll(0)
    return caught.value.segment, caught.value.start, caught.value.stop, caught.value.at_least


def test_a_reader_that_has_passed_a_segment_learns_that_it_lost_more(bench: Bench) -> None:
    consumer = bench.open()
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].put(FetchedLoss(Loss(3, 5, True)))
    bench.fetchers[0].put(SegmentEnd(3))
    successor = bench.child(1, 0, PARTITIONS, bench.first)
    bench.topic.seal(bench.first, 3, successor, **LOST)
    refreshed(consumer, successor)
    assert offsets(consumer) == (0, 3)
    assert loss(consumer) == (bench.first.name, 3, 5, True)
    assert offsets(consumer) is None

    bench.topic.seal(bench.first, 3, successor, lost=Loss(3, 9, at_least=True))
    eventually(
        lambda: consumer._reads.sealed[bench.first.name].lost == Loss(3, 9, at_least=True) and not consumer._history.due
    )
    consumer._open_readable()
    assert loss(consumer) == (bench.first.name, 5, 9, True), "the rest"
    assert offsets(consumer) is None


def test_a_reader_learns_that_a_loss_covers_what_it_had_from_the_tail_before_it_gets_it_again(bench: Bench) -> None:
    """It read 5 messages from the tail. All replicas were lost, and what was not acked is sent again."""
    consumer = bench.open()
    bench.fetchers[0].rows(0, 5)
    assert offsets(consumer) == (0, 5)
    successor = bench.child(1, 0, PARTITIONS, bench.first)
    bench.topic.seal(bench.first, 3, successor, lost=Loss(3, 3, at_least=True))
    reported = loss_for_reader(5, bench.topic.sealed[bench.first.name].lost)
    assert reported is not None and bench.fetchers[0].put(FetchedLoss(reported))
    bench.fetchers[0].put(SegmentEnd(3))
    refreshed(consumer, successor)
    assert loss(consumer) == (bench.first.name, 3, 5, True)
    consumer._open_readable()
    bench.fetchers[-1].rows(0, 2)
    assert offsets(consumer) == (0, 2)


@pytest.mark.parametrize("position", [3, 4])
def test_a_reader_that_starts_at_the_end_of_a_segment_learns_what_is_lost(bench: Bench, position: int) -> None:
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first), **LOST)
    consumer = bench.open(start={bench.first.name: position})
    assert loss(consumer) == (bench.first.name, 3, 5, True)
    assert offsets(consumer) is None


def test_a_reader_that_starts_behind_a_loss_learns_nothing_of_it(bench: Bench) -> None:
    successor = bench.child(1, 0, PARTITIONS, bench.first)
    bench.topic.seal(bench.first, 3, successor, **LOST)
    consumer = bench.open(start={successor.name: 0})
    assert offsets(consumer) is None


def test_a_member_learns_what_the_group_has_passed_and_confirms_it(bench: Bench) -> None:
    bench.leader.lost_with_replicas = [
        groups_pb2.GroupPositions.SegmentLoss(segment="gone-0-8-9", loss=pb.Loss(start=2, stop=5, at_least=True))
    ]
    consumer = bench.open("g")
    eventually(lambda: consumer._losses.has_group_losses)
    assert consumer.commit() == {} and not bench.leader.requests("CommitPositions"), "its program does not know yet"
    assert loss(consumer) == ("gone-0-8-9", 2, 5, True)
    assert consumer.commit() == {}
    (request,) = bench.leader.requests("CommitPositions")
    assert dict(request.known_losses) == {"gone-0-8-9": 5}
    assert consumer.commit() == {} and len(bench.leader.requests("CommitPositions")) == 1, "once is enough"


def test_a_new_member_learns_of_losses_before_it_gets_messages(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.leader.lost_with_replicas = [
        groups_pb2.GroupPositions.SegmentLoss(segment="gone-0-8-9", loss=pb.Loss(start=2, stop=5, at_least=True))
    ]
    bench.leader.failures["GetPositions"] = [Unavailable("no leader")] * 1_000_000
    monkeypatch.setattr(group_losses, "LOSSES_TIMEOUT_SECONDS", 1e9)
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 2)
    bench.fetchers[0].rows(2, 1)
    assert offsets(consumer) is None
    monkeypatch.setattr(group_losses, "LOSSES_TIMEOUT_SECONDS", 0.0)
    assert offsets(consumer) == (0, 3), "if the leader does not answer for long, reading goes on"
    bench.fetchers[0].rows(3, 1)
    monkeypatch.setattr(group_losses, "LOSSES_TIMEOUT_SECONDS", 1e9)
    bench.leader.failures["GetPositions"].clear()
    eventually(lambda: consumer._losses.has_group_losses)
    assert loss(consumer) == ("gone-0-8-9", 2, 5, True)
    assert offsets(consumer) == (3, 4)


def test_a_confirmation_that_failed_is_repeated_with_the_next_commit(bench: Bench) -> None:
    consumer = bench.open("g", on_loss="skip")
    bench.fetchers[0].put(FetchedLoss(Loss(0, 4, True)))
    bench.fetchers[0].rows(4, 1)
    assert offsets(consumer) == (4, 5)
    assert consumer.poll(0) is None
    bench.leader.failures["CommitPositions"] = [Unavailable("no leader")]
    with pytest.raises(Unavailable):
        consumer.commit()
    assert consumer.commit() == {bench.first.name: 5}
    assert [dict(r.known_losses) for r in bench.leader.requests("CommitPositions")] == [{bench.first.name: 4}] * 2


def test_a_member_reads_its_losses_again_when_the_index_records_one(bench: Bench) -> None:
    consumer = bench.open("g")
    eventually(lambda: consumer._losses.has_group_losses and not consumer._loading_losses.due)
    name = bench.first.name
    bench.leader.lost_with_replicas = [
        groups_pb2.GroupPositions.SegmentLoss(segment=name, loss=pb.Loss(start=3, stop=5, at_least=True))
    ]
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first), **LOST)
    eventually(lambda: len(bench.leader.requests("GetPositions")) == 2 and not consumer._loading_losses.due)
    eventually(lambda: consumer._losses.pending)
    assert loss(consumer) == (name, 3, 5, True)
