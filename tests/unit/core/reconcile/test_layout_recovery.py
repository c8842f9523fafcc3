"""The layout that is rebuilt has every segment that the lost one can have had, and says what nobody knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model import layout_transitions as layouts
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import (
    Column,
    Durability,
    Layout,
    Phase,
    Reason,
    Replica,
    SealedSegment,
    Segment,
    Topic,
    TopicSchema,
    TopicSpec,
)
from smq_core.model.interval_set import from_numbers
from smq_core.model.keyspace import KeyRange
from smq_core.model.layout_transitions import SealPlan, Successor, sealed_entry
from smq_core.reading.segment_dag import index_is_stale, layout_is_stale
from smq_core.reconcile.layout_recovery import (
    SKIPPED_NUMBERS,
    ChainEnd,
    RebuiltLayout,
    TopicTraces,
    rebuild_layout,
)
from smq_core.scaling.placement import BrokerView, Placer

TOPIC = Topic("default/t", "uid", TopicSpec(partitions=16))
A, B = Replica("a", "a1", "a:1"), Replica("b", "b1", "b:1")
FREE = Replica("c", "c1", "c:1")
WHOLE, LEFT, RIGHT = KeyRange(0, 16), KeyRange(0, 8), KeyRange(8, 16)


def new(range_: KeyRange = WHOLE) -> Successor:
    return Successor(range_, (A, B), Durability.REPLICATED)


def first() -> Layout:
    return layouts.create(TOPIC.name, TOPIC.uid, 16, [new()], now=1, writer="w")


def sealing(layout: Layout, names: list[str], ranges: list[KeyRange]) -> Layout:
    successors = tuple(map(new, ranges))
    return layouts.plan(layout, [SealPlan(tuple(names), Reason.SPLIT, successors)], now=2, writer="w")


def split() -> Layout:
    return sealing(first(), ["t-0-16-0"], [LEFT, RIGHT])


def entry(segment: Segment, end: int = 5) -> SealedSegment:
    return sealed_entry(segment, SealOutcome(segment=segment.name, end=end), 3)


def opened(layout: Layout, *names: str) -> dict[str, Segment]:
    """These segments (all if none is given), as the brokers have them since they opened."""
    return {it.name: it for it in layout.segments if it.name in names or not names}


def rebuild(traces: TopicTraces, topic: Topic = TOPIC, brokers: bool = True) -> RebuiltLayout:
    found = rebuild_layout(
        topic, traces, Placer({"c1": BrokerView(replica=FREE)} if brokers else {}), now=1_000_000, writer="new"
    )
    assert not index_is_stale(found.layout, traces.sealed, traces.removed)
    assert not layout_is_stale(found.layout, traces.sealed, traces.removed)
    return found


def shape(layout: Layout) -> list[tuple[object, ...]]:
    return [(it.name, it.phase, it.replicas, it.predecessors, it.successors) for it in layout.segments]


@pytest.mark.parametrize("lost", [first(), split()], ids=["open", "being split"])
def test_what_brokers_have_gives_the_lost_layout(lost: Layout):
    rebuilt = rebuild(TopicTraces(hosted=opened(lost)))
    assert shape(rebuilt.layout) == shape(lost) and not rebuilt.unknown
    assert rebuilt.layout.next_number >= lost.next_number + SKIPPED_NUMBERS
    assert rebuilt.layout.version > lost.version


def test_successors_of_the_index_are_open_again():
    lost = split()
    sealed = (entry(lost.segment("t-0-16-0")),)
    hosted = opened(lost, "t-0-8-1", "t-8-16-2")
    rebuilt = rebuild(TopicTraces(sealed=sealed, hosted=hosted))
    assert shape(rebuilt.layout) == shape(layouts.activate(lost, {"t-0-16-0"}, writer="w"))
    assert not rebuilt.unknown


def test_a_sealed_segment_that_waits_for_the_other_one_of_its_merge_is_in_the_layout():
    lost = sealing(layouts.activate(split(), {"t-0-16-0"}, writer="w"), ["t-0-8-1", "t-8-16-2"], [WHOLE])
    sealed = (entry(split().segment("t-0-16-0")), entry(lost.segment("t-0-8-1")))
    rebuilt = rebuild(TopicTraces(sealed=sealed, hosted=opened(lost, "t-8-16-2", "t-0-16-3")))
    phases = {it.name: it.phase for it in rebuilt.layout.segments}
    assert phases == {it.name: it.phase for it in lost.segments}
    assert not rebuilt.unknown


def test_a_sealed_chain_without_an_entry_is_sealing():
    lost = split()
    chains = {"t-0-16-0": ChainEnd(7, sealed=True)}
    rebuilt = rebuild(TopicTraces(hosted=opened(lost, "t-0-8-1", "t-8-16-2"), chains=chains))
    assert [it.phase for it in rebuilt.layout.segments] == [Phase.SEALING, Phase.PENDING, Phase.PENDING]
    assert rebuilt.layout.segment("t-0-16-0").loss_accepted, "nothing waits for replicas that nobody knows"
    assert not rebuilt.unknown


@pytest.mark.parametrize(
    "traces",
    [
        TopicTraces(chains={"t-0-16-0": ChainEnd(7, sealed=False)}),
        TopicTraces(named=["t-0-16-0"]),
        TopicTraces(sealed=(entry(split().segment("t-0-16-0")),)),
        TopicTraces(sealed=(entry(split().segment("t-0-16-0")),), hosted=opened(split(), "t-0-8-1")),
    ],
    ids=["unsealed chain", "only a position", "only the index", "one of two successors"],
)
def test_a_segment_that_no_broker_has_may_have_lost_messages(traces: TopicTraces):
    rebuilt = rebuild(traces)
    assert rebuilt.unknown
    for segment in rebuilt.layout.segments:
        known = traces.hosted.get(segment.name)
        assert known is not None or segment.loss_accepted


def test_partitions_without_any_segment_get_a_new_one_under_a_new_name():
    rebuilt = rebuild(TopicTraces(removed=from_numbers([0, 41]), chains={"t-0-8-40": ChainEnd(3, sealed=True)}))
    sealed, after, beside = rebuilt.layout.segments
    assert (sealed.name, sealed.phase, sealed.successors) == ("t-0-8-40", Phase.SEALING, (after.name,))
    assert (after.phase, after.range, after.replicas) == (Phase.PENDING, LEFT, (FREE,))
    assert (beside.phase, beside.range, beside.replicas) == (Phase.OPEN, RIGHT, (FREE,))
    assert rebuilt.layout.next_number > beside.number > after.number > 41 + SKIPPED_NUMBERS
    assert "partitions 0 to 7" in rebuilt.unknown[0] and "partitions 8 to 15" in rebuilt.unknown[1]


def test_numbers_of_segments_that_nobody_knows_are_skipped():
    assert rebuild(TopicTraces(hosted=opened(first()))).layout.next_number >= 1000


def test_removed_segments_and_foreign_folders_are_no_segments():
    lost = layouts.activate(split(), {"t-0-16-0"}, writer="w")
    chains = {name: ChainEnd(3, sealed=True) for name in ("t-0-16-0", "other-0-16-9", "t-0-32-7", "x")}
    rebuilt = rebuild(TopicTraces(removed=from_numbers([0]), hosted=opened(lost), chains=chains))
    assert [it.name for it in rebuilt.layout.segments] == ["t-0-8-1", "t-8-16-2"]


def test_nothing_is_rebuilt_without_a_broker_for_new_segments():
    with pytest.raises(ValueError, match="no broker is available"):
        rebuild(TopicTraces(), brokers=False)


V0 = (Column("a", "int32"), Column("b", "int32", nullable=True))
V1 = (Column("a", "int64"), Column("c", "string", nullable=True))
TYPED = Topic("default/t", "uid", TopicSpec(partitions=16, schema=V0))


def test_the_newest_schema_comes_from_the_brokers():
    hosted = {name: replace(it, schema_version=1) for name, it in opened(first()).items()}
    rebuilt = rebuild(TopicTraces(hosted=hosted, schemas={1: TopicSchema(1, V1)}), TYPED)
    assert rebuilt.layout.schemas == (TopicSchema(1, V1, dropped=("b",)),)
    assert rebuild(TopicTraces(hosted=opened(first())), TYPED).layout.schemas == (TopicSchema(0, V0),)


def test_columns_that_nobody_knows_are_not_guessed():
    chains = {"t-0-16-0": ChainEnd(7, sealed=False, schema_version=2)}
    with pytest.raises(ValueError, match="version 2 of the topic's schema"):
        rebuild(TopicTraces(chains=chains), TYPED)
