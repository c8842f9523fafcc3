"""A consumer in a group: what it reads, what it commits and what it gives up."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

import smq.consumer
from smq.consumer import Consumer
from smq.consuming.fetching.prefetch_buffer import SegmentEnd
from smq.consuming.groups import ended_segments, group_end
from smq.consuming.groups.ended_segments import EndedSegments
from smq.consuming.groups.group_end import GroupEnd
from smq_core.errors import (
    DataLost,
    InvalidRequest,
    StaleGeneration,
    Unavailable,
)
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import groups_pb2
from support.in_memory.consumer_bench import Bench, offsets, refreshed
from support.in_memory.topic import PARTITIONS
from support.waiting import eventually

# ---- in a group


def test_a_new_group_begins_where_its_first_member_says(bench: Bench) -> None:
    bench.found, bench.leader.positions = {bench.first.name: 4}, {}
    bench.open("g", start=datetime(2024, 1, 1, tzinfo=UTC))
    first = bench.leader.requests("JoinGroup")[0]
    assert (first.start, dict(first.start_positions)) == (groups_pb2.JoinGroupRequest.POSITIONS, {bench.first.name: 4})


def test_no_place_is_searched_for_a_group_that_has_positions(bench: Bench) -> None:
    bench.open("g", start=datetime(2024, 1, 1, tzinfo=UTC))
    assert bench.searches == 0 and bench.leader.requests("JoinGroup")[0].start == groups_pb2.JoinGroupRequest.EARLIEST


def test_a_member_that_goes_back_is_not_moved_on_by_its_next_heartbeat(bench: Bench) -> None:
    bench.leader.positions = {bench.first.name: 8}
    consumer = bench.open("g")
    bench.fetchers[0].rows(8, 3)
    assert offsets(consumer) == (8, 11)
    consumer.seek({bench.first.name: 2})
    bench.heartbeat(consumer)
    assert bench.plans() == [(bench.first.name, 8), (bench.first.name, 2)]
    assert consumer.commit() == {}, "nothing was returned since"
    bench.fetchers[1].rows(2, 3)
    assert offsets(consumer) == (2, 5)
    bench.leader.positions = {bench.first.name: 20}
    bench.heartbeat(consumer)
    assert bench.plans()[-1] == (bench.first.name, 20), "another member has read further"
    with pytest.raises(InvalidRequest, match="is not assigned to this member; possible are"):
        consumer.seek({"t-0-4-9": 1})


def test_the_program_learns_of_its_segments_when_it_polls(bench: Bench) -> None:
    other = bench.topic.segment(1, 4, PARTITIONS)
    calls: list[tuple[str, frozenset[str]]] = []
    consumer = bench.open(
        "g", on_assigned=lambda it: calls.append(("+", it)), on_revoked=lambda it: calls.append(("-", it))
    )
    assert calls == [], "not in the thread of the heartbeats"
    assert offsets(consumer) is None
    bench.assign(consumer, {other.name: 0})
    bench.heartbeat(consumer)
    assert offsets(consumer) is None
    consumer.close()
    one, two = frozenset([bench.first.name]), frozenset([other.name])
    assert calls == [("+", one), ("-", one), ("+", two), ("-", two)]


def test_a_revoked_segment_can_be_committed_before_another_member_gets_it(bench: Bench) -> None:
    consumer: Consumer
    consumer = bench.open("g", on_revoked=lambda _: consumer.commit())
    assert offsets(consumer) is None
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3) and offsets(consumer) is None, "it is done with the batch"
    bench.assign(consumer, {})
    bench.heartbeat(consumer)
    assert bench.leader.acknowledged() == 1, "the program does not know yet"
    bench.heartbeat_at_once(consumer)
    assert offsets(consumer) is None
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert bench.order()[:2] == ["CommitPositions", "JoinGroup"]


def test_callbacks_without_a_group_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidRequest, match="need a group"):
        bench.open(on_assigned=print)


def test_a_segment_whose_batch_is_still_worked_on_is_not_given_up(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)

    bench.assign(consumer, {})
    for _ in range(3):
        bench.heartbeat(consumer)
    assert consumer.assignment == frozenset(), "it is no longer read"
    assert bench.leader.acknowledged() == 1, "but the next owner must wait"

    bench.heartbeat_at_once(consumer)
    assert consumer.commit() == {bench.first.name: 3}
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert bench.order()[:2] == ["CommitPositions", "JoinGroup"]


def test_the_next_poll_gives_a_revoked_segment_up_without_a_commit(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.assign(consumer, {})
    assert bench.leader.acknowledged() == 1

    assert offsets(consumer) is None
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert bench.leader.committed == {}


def test_a_commit_of_another_segment_does_not_give_up_the_one_that_is_worked_on(bench: Bench) -> None:
    other = bench.topic.segment(1, 4, PARTITIONS)
    bench.leader.positions = {bench.first.name: 0, other.name: 0}
    consumer = bench.open("g")
    by_name = {f.segment: f for f in bench.fetchers}
    by_name[other.name].rows(0, 1)
    assert offsets(consumer) == (0, 1)
    by_name[bench.first.name].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.assign(consumer, {other.name: 0})

    assert consumer.commit({other.name: 1}) == {other.name: 1}
    bench.heartbeat(consumer)
    assert bench.leader.acknowledged() == 1
    assert consumer.commit() == {bench.first.name: 3}
    eventually(lambda: bench.leader.acknowledged() == 2)


def test_rows_of_a_revoked_segment_are_withheld(bench: Bench) -> None:
    consumer = bench.open("g")
    (fetcher,) = bench.fetchers
    fetcher.rows(0, 3)
    bench.assign(consumer, {})

    assert offsets(consumer) is None
    assert consumer._buffer._bytes == 0, "their budget is free"
    assert not fetcher.rows(3, 3)
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert consumer.commit() == {}


def test_rows_that_were_taken_while_their_segment_was_revoked_are_withheld(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    taken = consumer._buffer.take(1000)
    assert taken is not None
    bench.assign(consumer, {bench.first.name: 2})  # another member had it in between

    assert consumer._to_batch(*taken) is None
    assert consumer.positions == {bench.first.name: 2}


def test_a_segment_that_another_member_read_further_continues_there(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].rows(3, 3)
    bench.assign(consumer, {bench.first.name: 5})
    assert offsets(consumer) is None
    assert bench.plans() == [(bench.first.name, 0), (bench.first.name, 5)]


def test_a_segment_that_stays_is_not_read_again(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    for committed in (0, 2, 3):
        bench.assign(consumer, {bench.first.name: committed})
    assert bench.plans() == [(bench.first.name, 0)]
    assert bench.fetchers[0].rows(3, 1) and offsets(consumer) == (3, 4)


def test_a_segment_that_comes_back_continues_at_what_was_committed(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.assign(consumer, {})
    bench.assign(consumer, {bench.first.name: 1})
    assert bench.plans() == [(bench.first.name, 0), (bench.first.name, 1)]


def test_a_segment_that_was_read_to_its_end_is_not_read_again_before_its_commit(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first))
    refreshed(consumer, bench.topic.snapshot.layout.segments[0])
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].put(SegmentEnd(3))
    assert offsets(consumer) == (0, 3) and offsets(consumer) is None

    bench.heartbeat(consumer)
    assert len(bench.fetchers) == 1, "the leader still assigns it, because its end is not committed"
    before = len(bench.leader.requests("JoinGroup"))
    assert consumer.commit() == {bench.first.name: 3}
    bench.leader.wait_for_heartbeat(before)


def test_an_assignment_from_before_a_commit_has_nothing_read_again(bench: Bench) -> None:
    """A heartbeat that the leader answered before the commit is applied after it."""
    consumer = bench.open("g")
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first))
    refreshed(consumer, bench.topic.snapshot.layout.segments[0])
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].put(SegmentEnd(3))
    assert offsets(consumer) == (0, 3) and offsets(consumer) is None
    before = len(bench.leader.requests("JoinGroup"))
    assert consumer.commit() == {bench.first.name: 3}
    bench.leader.wait_for_heartbeat(before)
    consumer._on_assignment({bench.first.name: 0}, bench.leader.epoch)
    assert len(bench.fetchers) == 1, "its end is committed"


def test_a_segment_that_comes_back_late_continues_at_its_own_last_commit(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    assert consumer.commit() == {bench.first.name: 3}
    consumer._on_assignment({}, bench.leader.epoch)
    consumer._on_assignment({bench.first.name: 1}, bench.leader.epoch)
    assert bench.plans() == [(bench.first.name, 0), (bench.first.name, 3)]


def test_what_is_committed_after_its_segment_came_back_is_not_read_again(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    consumer._on_assignment({}, bench.leader.epoch)
    consumer._on_assignment({bench.first.name: 0}, bench.leader.epoch)
    bench.fetchers[1].rows(0, 3)
    assert consumer.commit({bench.first.name: 3}) == {bench.first.name: 3}
    assert bench.plans()[-1] == (bench.first.name, 3) and offsets(consumer) is None


def test_a_commit_after_a_seek_does_not_end_it(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    consumer.seek({bench.first.name: 1})
    assert consumer.commit({bench.first.name: 3}) == {bench.first.name: 3}
    assert bench.plans()[-1] == (bench.first.name, 1), "the program wants to read these again"


def test_only_what_was_returned_is_committed(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert consumer.commit() == {} and bench.leader.requests("CommitPositions") == []
    assert offsets(consumer) == (0, 3)
    assert consumer.commit({bench.first.name: 1}) == {bench.first.name: 1}
    assert consumer.commit() == {bench.first.name: 3}, "the rest of the batch"
    assert consumer.commit() == {}


def test_a_commit_that_fails_is_made_by_the_next_one(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.leader.failures["CommitPositions"] = [Unavailable("no leader")]
    with pytest.raises(Unavailable):
        consumer.commit()
    assert consumer.commit() == bench.leader.committed == {bench.first.name: 3}


def test_a_commit_leaves_out_what_has_moved_to_another_member(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.leader.assign({})
    bench.leader.failures["CommitPositions"] = [StaleGeneration("moved", segments=(bench.first.name,))]
    assert consumer.commit() == bench.leader.committed == {}


def test_auto_commit_stores_what_was_read_before_it_gives_the_segment_up(bench: Bench) -> None:
    consumer = bench.open("g", auto_commit=True)
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.assign(consumer, {})
    bench.heartbeat(consumer)
    assert bench.leader.acknowledged() == 1 and bench.leader.committed == {}

    bench.heartbeat_at_once(consumer)
    assert offsets(consumer) is None
    eventually(lambda: bench.leader.acknowledged() == 2)
    assert bench.leader.committed == {bench.first.name: 3}
    assert bench.order()[:2] == ["CommitPositions", "JoinGroup"]


@pytest.mark.parametrize("how", ["breaks", "fails", "closes"])
def test_auto_commit_leaves_out_the_batch_that_the_program_was_at(bench: Bench, how: str) -> None:
    def work() -> None:
        with bench.open("g", auto_commit=True) as consumer:
            bench.fetchers[0].rows(0, 3)
            assert offsets(consumer) == (0, 3)
            bench.fetchers[0].rows(3, 3)
            for batch in consumer:
                assert batch.next_offset == 6
                if how == "fails":
                    raise ZeroDivisionError
                if how == "breaks":
                    break
                consumer.close()

    if how == "fails":
        with pytest.raises(ZeroDivisionError):
            work()
    else:
        work()
    assert bench.leader.committed == {bench.first.name: 3}
    assert bench.leader.calls[-1][0] == "LeaveGroup"


def test_auto_commit_commits_what_the_program_has_polled_after(bench: Bench) -> None:
    with bench.open("g", auto_commit=True) as consumer:
        bench.fetchers[0].rows(0, 3)
        assert offsets(consumer) == (0, 3) and offsets(consumer) is None
    assert bench.leader.committed == {bench.first.name: 3}


def test_auto_commit_does_not_wait_for_another_message(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smq.consumer, "AUTO_COMMIT_INTERVAL_SECONDS", 0.02)
    consumer = bench.open("g", auto_commit=True)
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    consumer._last_commit = time.monotonic() + 0.02
    assert consumer.poll(0.2) is None
    assert bench.leader.committed == {bench.first.name: 3}


# ---- segments that end


def ended(bench: Bench, consumer: Consumer) -> None:
    """The first segment has 3 messages and ends; they are returned, and the program polls again."""
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first))
    refreshed(consumer, bench.topic.snapshot.layout.segments[0])
    bench.fetchers[0].rows(0, 3)
    bench.fetchers[0].put(SegmentEnd(3))
    assert offsets(consumer) == (0, 3) and offsets(consumer) is None


@pytest.mark.parametrize("auto_commit", [True, "segment_end"])
def test_a_segment_that_has_ended_is_committed_at_once_with_auto_commit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, auto_commit: Any
) -> None:
    monkeypatch.setattr(smq.consumer, "AUTO_COMMIT_INTERVAL_SECONDS", 3600.0)
    consumer = bench.open("g", auto_commit=auto_commit)
    ended(bench, consumer)
    assert bench.leader.committed == {bench.first.name: 3}


def test_the_rest_is_the_programs_if_only_segments_that_have_ended_are_committed(bench: Bench) -> None:
    other = bench.topic.segment(1, 4, PARTITIONS)
    bench.leader.positions = {bench.first.name: 0, other.name: 0}
    with bench.open("g", auto_commit="segment_end") as consumer:
        by_name = {f.segment: f for f in bench.fetchers}
        by_name[other.name].rows(0, 2)
        assert offsets(consumer) == (0, 2)
        by_name[bench.first.name].rows(0, 3)
        by_name[bench.first.name].put(SegmentEnd(3))
        assert offsets(consumer) == (0, 3) and offsets(consumer) is None
    assert bench.leader.committed == {bench.first.name: 3}


def test_a_commit_at_the_end_of_a_segment_that_fails_is_repeated(bench: Bench) -> None:
    consumer = bench.open("g", auto_commit="segment_end")
    bench.leader.failures["CommitPositions"] = [Unavailable("no leader")]
    ended(bench, consumer)
    assert bench.leader.committed == {}
    eventually(lambda: consumer.poll(0.05) is None and bench.leader.committed == {bench.first.name: 3})


def test_the_program_learns_which_commit_its_group_waits_for(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_segments, "WARN_AFTER_SECONDS", 0.0)
    calls: list[tuple[str, int]] = []
    consumer = bench.open("g", on_segment_end=lambda *it: calls.append(it))
    ended(bench, consumer)
    assert calls == [(bench.first.name, 3)]
    eventually(lambda: f"group g waits for your commit of offset 3 of {bench.first.name}" in caplog.text)
    bench.heartbeat(consumer)
    assert dict(bench.leader.requests("JoinGroup")[-1].ended) == {bench.first.name: 3}, "the leader knows too"
    assert consumer.commit() == {bench.first.name: 3}
    bench.heartbeat(consumer)
    assert dict(bench.leader.requests("JoinGroup")[-1].ended) == {}


def test_a_warning_of_a_commit_is_repeated_less_and_less_often() -> None:
    ended = EndedSegments("g")
    ended.add("s", 3, now=0.0)
    warned = [now for now in range(100) if ended.warnings(float(now))]
    assert warned == [5, 15, 35, 75]


def test_a_segment_whose_end_is_committed_already_waits_for_nothing(bench: Bench) -> None:
    calls: list[tuple[str, int]] = []
    consumer = bench.open("g", on_segment_end=lambda *it: calls.append(it))
    bench.topic.seal(bench.first, 3, bench.child(1, 0, PARTITIONS, bench.first))
    refreshed(consumer, bench.topic.snapshot.layout.segments[0])
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3) and consumer.commit() == {bench.first.name: 3}
    bench.fetchers[0].put(SegmentEnd(3))
    assert offsets(consumer) is None and calls == []


# ---- refused commits, and positions that were set


def test_a_commit_that_the_leader_refused_is_made_after_the_member_has_joined_again(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.leader.failures["CommitPositions"] = [StaleGeneration("join again")]
    assert consumer.commit() == bench.leader.committed == {bench.first.name: 3}


def test_a_commit_that_is_refused_while_the_leader_is_away_is_not_forgotten(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.leader.failures["CommitPositions"] = [StaleGeneration("join again")]
    bench.leader.failures["JoinGroup"] = [Unavailable("no leader")]
    with pytest.raises(Unavailable):
        consumer.commit()
    assert consumer.commit() == bench.leader.committed == {bench.first.name: 3}


def test_a_member_forgets_its_positions_when_the_groups_were_set(bench: Bench) -> None:
    events: list[str] = []
    consumer = bench.open(
        "g", on_assigned=lambda _: events.append("assigned"), on_revoked=lambda _: events.append("revoked")
    )
    bench.fetchers[0].rows(0, 8)
    assert offsets(consumer) == (0, 8) and consumer.commit() == {bench.first.name: 8}
    bench.fetchers[0].rows(8, 2)
    batch = consumer.poll(0)
    assert batch is not None
    bench.leader.reset({bench.first.name: 3})
    bench.heartbeat(consumer)
    assert bench.plans()[-1] == (bench.first.name, 3), "it reads from there"
    assert consumer.commit() == {} and consumer.commit(batch.positions) == {}, "what it read before does not count"
    bench.fetchers[-1].rows(3, 2)
    assert offsets(consumer) == (3, 5) and events == ["assigned", "revoked", "assigned"]
    assert consumer.commit() == {bench.first.name: 5}


def test_a_commit_of_a_member_that_does_not_know_of_the_reset_yet_changes_nothing(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 8)
    assert offsets(consumer) == (0, 8)
    bench.leader.reset({bench.first.name: 3})
    assert consumer.commit() == {} == bench.leader.committed
    assert bench.plans()[-1] == (bench.first.name, 3)


def test_a_segment_that_was_read_to_its_end_is_read_again_after_a_reset(bench: Bench) -> None:
    consumer = bench.open("g")
    ended(bench, consumer)
    assert consumer.commit() == {bench.first.name: 3}
    bench.leader.reset({bench.first.name: 1})
    bench.heartbeat(consumer)
    assert bench.plans()[-1] == (bench.first.name, 1)


@pytest.mark.parametrize("how", ["reset", "seek"])
def test_a_segment_that_is_read_again_waits_for_no_commit(bench: Bench, how: str) -> None:
    consumer = bench.open("g")
    ended(bench, consumer)
    assert consumer._ended.ends == {bench.first.name: 3}
    if how == "reset":
        bench.leader.reset({bench.first.name: 1})
    else:
        consumer.seek({bench.first.name: 1})
    bench.heartbeat(consumer)
    assert consumer._ended.ends == {} and bench.plans()[-1] == (bench.first.name, 1)


@pytest.mark.parametrize("offset", [True, 1.0, -1, None])
def test_a_position_that_is_no_offset_is_refused(bench: Bench, offset: Any) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    with pytest.raises(InvalidRequest, match="next offset"):
        consumer.commit({bench.first.name: offset})
    assert bench.leader.committed == {}


def test_a_poll_that_a_close_ends_commits_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The close commits by itself. The poll said that the group could not commit, although it had."""
    consumer = bench.open("g", auto_commit=True)
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    assert consumer.poll(0) is None
    consumer.close()
    committed = dict(bench.leader.committed)
    consumer._last_commit = float("-inf")
    with pytest.raises(InvalidRequest, match="is closed"):
        consumer.poll(0)
    assert bench.leader.committed == committed and "could not be committed" not in caplog.text


def test_a_position_beyond_what_was_returned_is_refused(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.fetchers[0].rows(3, 3)
    with pytest.raises(InvalidRequest, match=r"offset 4 of .* has returned messages up to 3"):
        consumer.commit({bench.first.name: 4})
    assert bench.leader.committed == {}
    consumer.seek({bench.first.name: 1})
    assert consumer.commit({bench.first.name: 3}) == {bench.first.name: 3}, "it was returned before"
    consumer.seek({bench.first.name: 50})
    assert consumer.commit({bench.first.name: 50}) == {bench.first.name: 50}, "the program has left the others out"


# ---- the end of a group


def test_a_group_is_at_its_end_when_every_segment_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = bench.open("g")
    searched: list[Mapping[str, int]] = []

    def search(it: GroupEnd, own: Mapping[str, int]) -> None:
        searched.append(own)
        it.searched(own, len(searched) > 1)

    monkeypatch.setattr(GroupEnd, "search", search)
    monkeypatch.setattr(group_end, "PAUSE_SECONDS", 0.0)
    assert not consumer.at_end() and searched == [], "the watermark is not known"
    bench.fetchers[0].watermark_known = True
    assert not consumer.at_end()
    eventually(lambda: len(searched) == 1)
    eventually(consumer.at_end)
    assert len(searched) >= 2


def test_a_program_that_polls_for_long_sees_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].watermark_known = True
    searched: list[Mapping[str, int]] = []

    def search(it: GroupEnd, own: Mapping[str, int]) -> None:
        it.searched(own, True)
        searched.append(own)

    monkeypatch.setattr(GroupEnd, "search", search)
    monkeypatch.setattr(group_end, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(group_end, "KNOWN_SECONDS", 0.0)  # every poll takes longer than a result is new
    assert not consumer.at_end()
    for count in (1, 2):
        eventually(lambda: len(searched) >= count)  # noqa: B023
        assert consumer.at_end(), "each call has started the search for the next one"


def test_a_heartbeat_reads_awaited_commits_with_the_lock(bench: Bench) -> None:
    consumer = bench.open("g")
    assert consumer._membership is not None
    awaited = consumer._membership._awaited_commits
    with consumer._changed:
        waiting = threading.Thread(target=awaited)
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive(), "it reads what other threads change only with the lock"
    waiting.join()


def test_close_commits_nothing_by_itself(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    consumer.close()
    assert bench.leader.committed == {} and bench.leader.calls[-1][0] == "LeaveGroup"


def test_a_commit_after_close_is_an_error_and_does_not_join_again(bench: Bench) -> None:
    consumer = bench.open("g")
    bench.fetchers[0].rows(0, 3)
    assert offsets(consumer) == (0, 3)
    bench.leader.failures["CommitPositions"] = [StaleGeneration("it has left")]
    consumer.close()
    with pytest.raises(InvalidRequest, match="closed"):
        consumer.commit()
    assert bench.leader.committed == {} and bench.leader.calls[-1][0] == "LeaveGroup"
    assert consumer._membership is not None
    with pytest.raises(InvalidRequest, match="closed"):
        consumer._membership._join()
    assert bench.leader.calls[-1][0] == "LeaveGroup"


def test_a_callback_that_fails_does_not_keep_a_consumer_open(bench: Bench) -> None:
    def fail(_: object) -> None:
        raise ValueError("of the program")

    consumer = bench.open("g", on_revoked=fail)
    with pytest.raises(ValueError, match="of the program"):
        consumer.close()
    assert bench.leader.calls[-1][0] == "LeaveGroup" and not bench.fetchers[0].alive


def test_a_group_learns_of_a_loss_after_the_leader_failed_to_answer(bench: Bench) -> None:
    bench.leader.failures["GetPositions"] = [Unavailable("no leader")]
    lost = groups_pb2.GroupPositions.SegmentLoss(segment="gone-0-8-9", loss=pb.Loss(start=2, stop=5))
    bench.leader.lost = [
        lost,
        groups_pb2.GroupPositions.SegmentLoss(segment="old-0-8-8", loss=pb.Loss(start=0, stop=1), acknowledged=True),
    ]
    consumer = bench.open("g")
    eventually(lambda: len(bench.leader.requests("GetPositions")) == 2 and consumer._losses.has_group_losses)

    with pytest.raises(DataLost) as caught:
        consumer.poll(0)
    assert (caught.value.segment, caught.value.start, caught.value.stop) == ("gone-0-8-9", 2, 5)
    assert offsets(consumer) is None, "once, and not what an earlier member was told"
