"""Who may write at a primary, which stream of a producer counts, and which producers are forgotten."""

from __future__ import annotations

import pytest

from smq_core.errors import ProducerFenced, SequenceGap, Unavailable
from smq_core.model.chunk_info import CONFLICTING_INSTANCES, ProducerState, SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch, ProducerLimits, ReplicaConfig
from smq_core.replica.producer_sessions import MAX_FORGOTTEN_PER_ENTRY, OpenedProducer
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica

IDLE = 100


def primary(
    *, max_producers: int = 1000, followers: tuple[str, ...] = (), predecessors: tuple[str, ...] = ()
) -> SegmentReplica:
    config = ReplicaConfig(
        segment="s",
        range=KeyRange(0, 1),
        incarnation="p",
        replicas=("p", *followers),
        durability=Durability.REPLICATED,
        predecessors=predecessors,
        producer_limits=ProducerLimits(max_producers, IDLE),
    )
    return SegmentReplica(config)


def append(
    it: SegmentReplica,
    name: str,
    sequence: int = 0,
    *,
    now: int = 0,
    epoch: int = 0,
    instance: str = "",
    stream: str = "",
) -> Entry:
    """Two rows."""
    batch = IncomingBatch(
        id=BatchId(name, epoch, sequence, instance), rows=2, nbytes=20, partition_min=0, partition_max=0, payload=None
    )
    entry = it.append(stream or name, batch, now)
    assert entry is not None
    return entry


def write_and_close(it: SegmentReplica, *names: str, now: int = 0) -> None:
    """Each producer opens a stream, appends one batch and closes the stream."""
    for name in names:
        it.open_producer(name, name, 0)
        append(it, name, now=now)
        it.close_producer(name, name)


def known(it: SegmentReplica) -> set[str]:
    return set(it.sessions.producers.snapshot())


# ---- forgetting


def test_an_idle_producer_is_forgotten_with_the_next_batch() -> None:
    it = primary()
    write_and_close(it, "a")
    assert append(it, "b", now=IDLE).forgotten == ()
    assert append(it, "b", 1, now=IDLE + 1).forgotten == ("a",)
    assert known(it) == {"b"}
    assert it.sessions.producers.forgotten_upto == 1, "above the first offset of the last batch"
    assert it.open_producer("again", "a", 0) == OpenedProducer(None, end=it.end, forgotten_upto=1)


def test_idle_time_is_log_time_which_never_goes_back() -> None:
    it = primary()
    it.open_producer("a", "a", 0)
    append(it, "a", now=50)
    append(it, "b", now=50 + IDLE + 1)
    it.close_producer("a", "a")
    assert append(it, "b", 1, now=0).forgotten == ("a",)


def test_beyond_the_limit_the_one_that_closed_first_is_forgotten_first() -> None:
    it = primary(max_producers=3)
    write_and_close(it, "a", "b", "c")
    assert known(it) == {"a", "b", "c"}
    assert append(it, "c", 1).forgotten == (), "as many as allowed"
    assert append(it, "d").forgotten == ("a",)
    assert known(it) == {"b", "c", "d"}


def test_a_producer_with_an_open_stream_is_never_forgotten() -> None:
    it = primary(max_producers=1)
    for stream in ("one", "two"):
        it.open_producer(stream, "a", 0)
    append(it, "a", stream="two")
    it.close_producer("two", "a")
    write_and_close(it, "b", now=10 * IDLE)
    assert "a" in known(it), "the older stream is still open"
    it.close_producer("one", "a")
    append(it, "c", now=20 * IDLE)
    assert known(it) == {"c"}


def test_a_producer_that_opens_again_in_time_is_kept() -> None:
    it = primary(max_producers=1)
    write_and_close(it, "a")
    it.open_producer("again", "a", 0)
    append(it, "b", now=10 * IDLE)
    assert known(it) == {"a", "b"}


def test_a_producer_whose_last_batch_is_not_durable_is_kept() -> None:
    it = primary(max_producers=1, followers=("f",))
    it.follower_connected("f", 0, 1 << 20)
    write_and_close(it, "a")
    append(it, "b", now=10 * IDLE)
    assert known(it) == {"a", "b"}
    it.follower_acked("f", 2)
    append(it, "b", 1, now=10 * IDLE)
    assert known(it) == {"b"}


def test_the_producer_that_appends_is_kept() -> None:
    it = primary(max_producers=0)
    append(it, "a")
    assert append(it, "a", 1, now=10 * IDLE).forgotten == ()
    assert known(it) == {"a"}


def test_one_entry_forgets_at_most_64_producers() -> None:
    it = primary()
    write_and_close(it, *(f"p{n:03}" for n in range(100)))
    assert MAX_FORGOTTEN_PER_ENTRY == 64
    assert append(it, "b", now=2 * IDLE).forgotten == tuple(f"p{n:03}" for n in range(64))
    assert append(it, "b", 1, now=2 * IDLE).forgotten == tuple(f"p{n:03}" for n in range(64, 100))
    assert known(it) == {"b"}


def test_a_batch_that_is_refused_forgets_nobody() -> None:
    it = primary(max_producers=1)
    write_and_close(it, "a")
    with pytest.raises(SequenceGap):
        append(it, "b", 1, now=2 * IDLE)
    assert known(it) == {"a"}


def test_inherited_producers_are_forgotten_too_and_need_no_offset() -> None:
    it = primary(max_producers=2, predecessors=("x",))
    states = {
        name: ProducerState(epoch=1, last_sequence=7, recent=(n,), instance="i", appended=n)
        for n, name in enumerate("abc")
    }
    it.open_producer("stream", "a", 1, "i")
    it.predecessor_sealed(SealOutcome(segment="x", end=9, producers=states))
    entry = append(it, "d")
    assert set(entry.inherited or ()) == {"a", "b", "c"} and entry.forgotten == ("b", "c"), "a has an open stream"
    assert it.sessions.producers.forgotten_upto == 0
    assert append(it, "d", 1).inherited is None
    it.close_producer("stream", "a")
    append(it, "d", 2, now=2 * IDLE)
    assert known(it) == {"d"}


# ---- streams


def test_only_the_newest_stream_may_append() -> None:
    it = primary()
    it.open_producer("one", "a", 0)
    append(it, "a", stream="one")
    it.open_producer("two", "a", 0)
    with pytest.raises(Unavailable):
        append(it, "a", 1, stream="one")
    append(it, "a", 1, stream="two")


def test_a_replaced_stream_stays_replaced_when_the_newer_one_is_closed() -> None:
    """The producer may have sent another batch with the same sequence on the newer one."""
    it = primary()
    it.open_producer("one", "a", 0)
    it.open_producer("two", "a", 0)
    it.close_producer("two", "a")
    with pytest.raises(Unavailable):
        append(it, "a", stream="one")
    it.open_producer("three", "a", 0)
    append(it, "a", stream="three")


def test_streams_that_opened_while_the_segment_waited_are_replaced_too() -> None:
    it = primary(predecessors=("x",))
    it.open_producer("one", "a", 0)
    it.open_producer("two", "a", 0)
    it.predecessor_sealed(SealOutcome(segment="x", end=0))
    with pytest.raises(Unavailable):
        append(it, "a", stream="one")
    append(it, "a", stream="two")


def test_a_process_of_an_older_epoch_does_not_replace_the_stream_of_the_newer_one() -> None:
    it = primary()
    append(it, "a", epoch=0)
    it.open_producer("new", "a", 1)
    it.open_producer("old", "a", 0)
    append(it, "a", epoch=1, stream="new")
    with pytest.raises(ProducerFenced):
        append(it, "a", 1, epoch=0, stream="old")


def test_closing_a_stream_twice_or_one_of_nobody_does_nothing() -> None:
    it = primary(max_producers=1)
    it.open_producer("one", "a", 0)
    append(it, "a", stream="one")
    for stream in ("other", "one", "one"):
        it.close_producer(stream, "a")
    it.close_producer("one", "b")
    append(it, "c")
    assert known(it) == {"c"}


# ---- instances


def test_another_instance_of_the_same_epoch_is_fenced_after_the_first_batch() -> None:
    it = primary()
    it.open_producer("one", "a", 3, "i")
    it.open_producer("two", "a", 3, "j")
    append(it, "a", epoch=3, instance="i", stream="one")
    for refused in (
        lambda: append(it, "a", epoch=3, instance="j", stream="two"),
        lambda: it.open_producer("three", "a", 3, "j"),
    ):
        with pytest.raises(ProducerFenced):
            refused()
    append(it, "a", 1, epoch=3, instance="i", stream="one")


def test_another_instance_goes_on_with_a_newer_epoch() -> None:
    it = primary()
    append(it, "a", epoch=3, instance="i")
    append(it, "a", epoch=4, instance="j")
    with pytest.raises(ProducerFenced) as raised:
        append(it, "a", 1, epoch=3, instance="i")
    assert raised.value.epoch == 4


@pytest.mark.parametrize("order", [("", "i"), ("i", "")])
def test_an_unknown_instance_matches_any_and_does_not_hide_a_known_one(order: tuple[str, str]) -> None:
    it = primary()
    for sequence, instance in enumerate(order):
        append(it, "a", sequence, instance=instance)
    assert it.open_producer("stream", "a", 0, "").last_sequence == 1
    with pytest.raises(ProducerFenced):
        it.open_producer("stream", "a", 0, "j")


@pytest.mark.parametrize("instance", ["", "i", "j"])
def test_conflicting_instances_are_all_fenced_until_a_newer_epoch(instance: str) -> None:
    it = primary(predecessors=("x", "y"))
    for name, other in (("x", "i"), ("y", "j")):
        it.predecessor_sealed(
            SealOutcome(
                segment=name,
                end=1,
                producers={"a": ProducerState(epoch=2, last_sequence=0, recent=(0,), instance=other)},
            )
        )
    state = it.sessions.producers.get("a")
    assert state is not None and state.instance == CONFLICTING_INSTANCES
    with pytest.raises(ProducerFenced):
        append(it, "a", epoch=2, instance=instance)
    append(it, "a", epoch=3, instance=instance)


# ---- predecessors


def test_sequences_begin_at_0_after_what_was_inherited() -> None:
    it = primary(predecessors=("x",))
    it.predecessor_sealed(
        SealOutcome(
            segment="x",
            end=20,
            producers={"a": ProducerState(epoch=2, last_sequence=9, recent=(18,), instance="i", appended=5)},
        )
    )
    assert it.open_producer("stream", "a", 2, "i").last_sequence is None
    with pytest.raises(ProducerFenced):
        it.open_producer("older", "a", 1, "i")
    append(it, "a", 0, epoch=2, instance="i", stream="stream")


def test_a_successor_of_a_segment_that_ended_empty_waits_for_the_segments_before_it() -> None:
    it = primary(predecessors=("y",))
    it.predecessor_sealed(SealOutcome(segment="y", end=0, uninherited=("x1", "x2")))
    assert it.state is ReplicaState.WAITING and it.unread_predecessors == {"x1", "x2"}
    it.predecessor_sealed(SealOutcome(segment="x1", end=0, uninherited=("w",)))
    assert it.unread_predecessors == {"x2", "w"}, "and so on"
    it.predecessor_sealed(
        SealOutcome(
            segment="w", end=4, producers={"a": ProducerState(epoch=1, last_sequence=0, recent=(0,), instance="i")}
        )
    )
    it.predecessor_sealed(
        SealOutcome(
            segment="x2",
            end=4,
            producers={
                "a": ProducerState(epoch=2, last_sequence=0, recent=(0,), instance="j"),
                "b": ProducerState(epoch=0, last_sequence=0, recent=(2,)),
            },
        )
    )
    assert it.state is ReplicaState.OPEN
    assert it.sessions.producers.snapshot() == {
        "a": ProducerState(epoch=2, last_sequence=-1, recent=(), instance="j"),
        "b": ProducerState(epoch=0, last_sequence=-1, recent=()),
    }


def test_a_segment_that_is_reached_on_two_ways_is_read_once() -> None:
    it = primary(predecessors=("y", "z"))
    it.predecessor_sealed(SealOutcome(segment="y", end=0, uninherited=("x",)))
    it.predecessor_sealed(
        SealOutcome(
            segment="x", end=4, producers={"a": ProducerState(epoch=1, last_sequence=0, recent=(0,), instance="i")}
        )
    )
    it.predecessor_sealed(SealOutcome(segment="z", end=0, uninherited=("x",)))
    assert it.state is ReplicaState.OPEN and known(it) == {"a"}


@pytest.mark.parametrize("names", [("x", "y", "z"), ("z", "x", "y"), ("y", "z", "x")])
def test_a_merge_of_three_inherits_the_highest_epoch_in_any_order(names: tuple[str, ...]) -> None:
    states = {
        "x": {"a": ProducerState(epoch=1, last_sequence=5, recent=(0,), instance="i", appended=7)},
        "y": {
            "a": ProducerState(epoch=2, last_sequence=1, recent=(0,), instance="j", appended=3),
            "b": ProducerState(epoch=0, last_sequence=0, recent=(1,), instance="k", appended=1),
        },
        "z": {"b": ProducerState(epoch=0, last_sequence=3, recent=(1,), instance="", appended=2)},
    }
    it = primary(predecessors=("x", "y", "z"))
    for name in names:
        it.predecessor_sealed(SealOutcome(segment=name, end=9, producers=states[name]))
    expected = {
        "a": ProducerState(epoch=2, last_sequence=-1, recent=(), instance="j", appended=7),
        "b": ProducerState(epoch=0, last_sequence=-1, recent=(), instance="k", appended=2),
    }
    assert append(it, "c").inherited == expected
