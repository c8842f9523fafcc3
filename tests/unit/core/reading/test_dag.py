"""The reader's DAG: everything is read once, and nothing before all that came before it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.model.entities import Durability, Layout, Phase, Reason, SealedSegment, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_core.reading.segment_dag import ReadProgress, SegmentNode, index_is_stale, layout_is_stale


def chain(*nodes: SegmentNode) -> dict[str, SegmentNode]:
    return {n.name: n for n in nodes}


@st.composite
def dags(draw: st.DrawFn) -> dict[str, SegmentNode]:
    """Segments, oldest first; some empty; the last ones not sealed."""
    nodes: dict[str, SegmentNode] = {}
    for i in range(draw(st.integers(1, 9))):
        older = list(nodes)
        before = tuple(draw(st.lists(st.sampled_from(older), unique=True, max_size=3))) if older else ()
        nodes[f"s{i}"] = SegmentNode(f"s{i}", before, draw(st.integers(0, 3)))
    return nodes


def ancestors(nodes: dict[str, SegmentNode], name: str) -> set[str]:
    before = set(nodes[name].predecessors)
    return before.union(*(ancestors(nodes, p) for p in before))


@settings(max_examples=300, deadline=None)
@given(dags(), st.data())
def test_everything_is_read_once_and_after_all_its_ancestors(
    nodes: dict[str, SegmentNode], data: st.DataObject
) -> None:
    """The reader may be stopped anywhere and continue from what it committed, with the ends known early or late."""
    read: list[tuple[str, int]] = []
    reader = ReadProgress()
    reader.update(nodes)
    while readable := reader.readable():
        if data.draw(st.booleans(), label="restart"):
            committed = dict(reader.committed())
            reader = ReadProgress(positions=committed)
            reader.update(nodes)
            assert reader.readable() == readable, "it continues where it was"
        name = data.draw(st.sampled_from(readable))
        assert all((a, offset) in read for a in ancestors(nodes, name) for offset in range(nodes[a].end or 0)), (
            "everything before it was read"
        )
        at = reader.positions.get(name, 0)
        read.append((name, at))
        reader.advance(name, at + 1)
    assert sorted(read) == [(n, o) for n in sorted(nodes) for o in range(nodes[n].end or 0)]


def test_an_empty_segment_does_not_let_a_reader_pass_its_unread_predecessors() -> None:
    reader = ReadProgress()
    reader.update(chain(SegmentNode("a", (), 5), SegmentNode("b", ("a",), 0), SegmentNode("c", ("b",))))
    assert reader.readable() == ["a"]
    reader.advance("a", 5)
    assert reader.readable() == ["c"]


def test_a_predecessor_that_retention_removed_counts_as_read() -> None:
    reader = ReadProgress()
    reader.update(chain(SegmentNode("b", ("a",), 5)))
    assert reader.readable() == ["b"]


def test_a_segment_that_is_not_sealed_holds_its_successors_back() -> None:
    reader = ReadProgress()
    reader.update(chain(SegmentNode("a", ()), SegmentNode("b", ("a",))))
    reader.advance("a", 9)
    assert reader.readable() == ["a"]
    reader.ended("a", 9)
    assert reader.readable() == ["b"]


def test_a_merge_waits_for_both() -> None:
    reader = ReadProgress()
    reader.update(chain(SegmentNode("a", (), 1), SegmentNode("b", (), 1), SegmentNode("c", ("a", "b"))))
    reader.advance("a", 1)
    assert reader.readable() == ["b"]
    reader.advance("b", 1)
    assert reader.readable() == ["c"]


def test_positions_never_go_back_and_known_ends_stay() -> None:
    reader = ReadProgress()
    reader.update(chain(SegmentNode("a", (), 5)))
    reader.advance("a", 3)
    reader.advance("a", 1)
    reader.update(chain(SegmentNode("a", ())))
    assert reader.positions == {"a": 3}
    assert reader.nodes["a"].end == 5


def test_a_position_beyond_the_end_is_a_loss_and_counts_as_read() -> None:
    reader = ReadProgress()
    reader.update(chain(SegmentNode("a", ()), SegmentNode("b", ("a",))))
    reader.advance("a", 9)
    reader.ended("a", 7)
    assert reader.losses == [("a", Loss(7, 9))]
    assert reader.readable() == ["b"]


@pytest.mark.parametrize(
    ("reported", "position", "removed_to", "losses"),
    [
        (None, 4, 7, [("a", Loss(4, 7))]),
        (None, 7, 7, []),
        (None, 9, 7, [("a", Loss(7, 9))]),
        (None, 4, None, [("a", Loss(4, 4, at_least=True))]),
        (7, 4, None, [("a", Loss(4, 7))]),
        (7, 7, None, []),
    ],
    ids=["unread", "read, not heard", "delivered beyond", "nobody knows", "the end was heard", "read"],
)
def test_of_a_removed_segment_what_lies_between_position_and_end_is_lost(
    reported: int | None, position: int, removed_to: int | None, losses: list[tuple[str, Loss]]
) -> None:
    reader = ReadProgress()
    reader.update(chain(SegmentNode("a", (), reported), SegmentNode("b", ("a",))))
    reader.advance("a", position)
    reader.removed("a", removed_to)
    assert reader.losses == losses
    assert reader.readable() == ["b"]


def test_rows_delivered_beyond_the_end_of_a_removed_segment_are_reported_once() -> None:
    reader = ReadProgress(positions={"a": 9})
    for _ in range(2):
        reader.removed("a", 7)
    assert reader.losses == [("a", Loss(7, 9))]
    assert reader.committed() == {"a": 7}


def test_a_removed_segment_implied_by_a_later_position_is_no_loss() -> None:
    reader = ReadProgress(positions={"b": 1})
    reader.update(chain(SegmentNode("a", ()), SegmentNode("b", ("a",))))
    reader.removed("a", 7)
    assert reader.losses == []


def test_an_empty_segment_that_is_removed_is_no_loss() -> None:
    reader = ReadProgress()
    reader.update(chain(SegmentNode("x", (), 4), SegmentNode("a", ("x",), 0), SegmentNode("b", ("a",))))
    reader.removed("a", 0)
    assert reader.losses == []


def test_latest_skips_what_is_sealed() -> None:
    reader = ReadProgress()
    reader.update(chain(SegmentNode("a", (), 5), SegmentNode("b", ("a",))))
    reader.skip_to_latest()
    assert reader.readable() == ["b"]


@pytest.mark.parametrize("start", [{"b": 2}, {"b": 0}])
def test_whoever_has_a_position_in_a_segment_has_read_all_before_it(start: dict[str, int]) -> None:
    reader = ReadProgress(positions=start)
    reader.update(chain(SegmentNode("x", (), 4), SegmentNode("a", ("x",)), SegmentNode("b", ("a",))))
    assert reader.readable() == ["b"]


def test_nothing_is_read_while_the_dag_is_older_than_a_position() -> None:
    reader = ReadProgress(positions={"t-0-8-2": 4})
    first, second = SegmentNode("t-0-8-0", (), 9), SegmentNode("t-0-8-1", ("t-0-8-0",))
    reader.update(chain(first, second))
    assert reader.readable() == [], "all of this was read before"
    third = SegmentNode("t-0-8-2", ("t-0-8-1",))
    reader.update(chain(first, SegmentNode("t-0-8-1", ("t-0-8-0",), 9), third))
    assert reader.readable() == ["t-0-8-2"]


def entry(number: int) -> SealedSegment:
    """Segment ``number`` of a chain, sealed."""
    before = (f"t-0-8-{number - 1}",) if number else ()
    after = (f"t-0-8-{number + 1}",)
    return SealedSegment(
        name=f"t-0-8-{number}",
        number=number,
        range=KeyRange(0, 8),
        end=10,
        predecessors=before,
        successors=after,
        opened_because=Reason.CREATE,
        sealed_because=Reason.ROLL,
        opened_at=0,
        sealed_at=0,
    )


def living(number: int) -> Layout:
    """A layout whose only segment is ``number`` of the chain."""
    it = Segment(
        name=f"t-0-8-{number}",
        number=number,
        range=KeyRange(0, 8),
        phase=Phase.OPEN,
        durability=Durability.STORED,
        replicas=(),
        predecessors=(f"t-0-8-{number - 1}",),
    )
    return Layout(topic="default/t", uid="u", partitions=8, next_number=number + 1, segments=(it,))


def test_an_index_that_lacks_a_predecessor_is_behind_unless_retention_removed_it() -> None:
    layout, whole = living(3), [entry(0), entry(1), entry(2)]
    assert not index_is_stale(layout, whole)
    assert index_is_stale(layout, whole[:2]), "read before the last entry was appended"
    assert index_is_stale(layout, whole[1:]), "an entry in the middle refers to what is not there"
    assert not index_is_stale(layout, whole[1:], ((0, 1),))
    assert not index_is_stale(layout, [], ((0, 3),))
    assert index_is_stale(layout, [], ((0, 2),))


def test_a_layout_that_does_not_know_what_the_index_has_is_behind() -> None:
    layout = living(3)
    assert not layout_is_stale(layout, [entry(0), entry(1), entry(2)])
    assert not layout_is_stale(layout, [], ((0, 3),))
    assert layout_is_stale(layout, [entry(2), entry(4)]), "that segment is not in the layout"
    assert layout_is_stale(layout, [], ((0, 5),)), "nor of one that was removed"
    assert layout_is_stale(layout, [entry(3)]), "nor that its own one is being replaced"
    assert layout_is_stale(layout, [], ((0, 4),)), "nor that it was removed"
    sealing = replace(layout.segments[0], phase=Phase.SEALING, successors=("t-0-8-4",))
    assert not layout_is_stale(replace(layout, segments=(sealing,)), [entry(3)]), "the index has the seal first"


def test_an_index_with_more_than_left_the_layout_does_not_hide_what_is_missing() -> None:
    assert index_is_stale(living(3), [entry(0), entry(1), entry(3)]), "the same count, but not the same segments"
