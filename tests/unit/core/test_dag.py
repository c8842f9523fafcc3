"""The reader's DAG: everything is read once, and nothing before all that came before it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.dag import Loss, Node, Reader, index_is_behind, layout_is_behind
from smq_core.keyspace import KeyRange
from smq_core.model import Durability, Layout, Phase, Reason, SealedSegment, Segment


def chain(*nodes: Node) -> dict[str, Node]:
    return {n.name: n for n in nodes}


@st.composite
def dags(draw: st.DrawFn) -> dict[str, Node]:
    """Segments, oldest first; some empty; the last ones not sealed."""
    nodes: dict[str, Node] = {}
    for i in range(draw(st.integers(1, 9))):
        older = list(nodes)
        before = tuple(draw(st.lists(st.sampled_from(older), unique=True, max_size=3))) if older else ()
        nodes[f"s{i}"] = Node(f"s{i}", before, draw(st.integers(0, 3)))
    return nodes


def ancestors(nodes: dict[str, Node], name: str) -> set[str]:
    before = set(nodes[name].predecessors)
    return before.union(*(ancestors(nodes, p) for p in before))


@settings(max_examples=300, deadline=None)
@given(dags(), st.data())
def test_everything_is_read_once_and_after_all_its_ancestors(nodes: dict[str, Node], data: st.DataObject) -> None:
    """The reader may be stopped anywhere and go on from what it committed, with the ends known early or late."""
    read: list[tuple[str, int]] = []
    reader = Reader()
    reader.update(nodes)
    while readable := reader.readable():
        if data.draw(st.booleans(), label="restart"):
            committed = dict(reader.committed())
            reader = Reader(positions=committed)
            reader.update(nodes)
            assert reader.readable() == readable, "it goes on where it was"
        name = data.draw(st.sampled_from(readable))
        assert all((a, offset) in read for a in ancestors(nodes, name) for offset in range(nodes[a].end or 0)), (
            "everything before it was read"
        )
        at = reader.positions.get(name, 0)
        read.append((name, at))
        reader.advance(name, at + 1)
    assert sorted(read) == [(n, o) for n in sorted(nodes) for o in range(nodes[n].end or 0)]


def test_an_empty_segment_does_not_let_a_reader_pass_its_unread_predecessors() -> None:
    reader = Reader()
    reader.update(chain(Node("a", (), 5), Node("b", ("a",), 0), Node("c", ("b",))))
    assert reader.readable() == ["a"]
    reader.advance("a", 5)
    assert reader.readable() == ["c"]


def test_a_predecessor_that_retention_removed_counts_as_read() -> None:
    reader = Reader()
    reader.update(chain(Node("b", ("a",), 5)))
    assert reader.readable() == ["b"]


def test_a_segment_that_is_not_sealed_holds_its_successors_back() -> None:
    reader = Reader()
    reader.update(chain(Node("a", ()), Node("b", ("a",))))
    reader.advance("a", 9)
    assert reader.readable() == ["a"]
    reader.ended("a", 9)
    assert reader.readable() == ["b"]


def test_a_merge_waits_for_both() -> None:
    reader = Reader()
    reader.update(chain(Node("a", (), 1), Node("b", (), 1), Node("c", ("a", "b"))))
    reader.advance("a", 1)
    assert reader.readable() == ["b"]
    reader.advance("b", 1)
    assert reader.readable() == ["c"]


def test_positions_never_go_back_and_known_ends_stay() -> None:
    reader = Reader()
    reader.update(chain(Node("a", (), 5)))
    reader.advance("a", 3)
    reader.advance("a", 1)
    reader.update(chain(Node("a", ())))
    assert reader.positions == {"a": 3}
    assert reader.nodes["a"].end == 5


def test_a_position_beyond_the_end_is_a_loss_and_counts_as_read() -> None:
    reader = Reader()
    reader.update(chain(Node("a", ()), Node("b", ("a",))))
    reader.advance("a", 9)
    reader.ended("a", 7)
    assert reader.losses == [Loss("a", 7, 9)]
    assert reader.readable() == ["b"]


@pytest.mark.parametrize(
    ("heard", "position", "told", "losses"),
    [
        (None, 4, 7, [Loss("a", 4, 7)]),
        (None, 7, 7, []),
        (None, 9, 7, [Loss("a", 7, 9)]),
        (None, 4, None, [Loss("a", 4, 4)]),
        (7, 4, None, [Loss("a", 4, 7)]),
        (7, 7, None, []),
    ],
    ids=["unread", "read, not heard", "delivered beyond", "nobody knows", "the end was heard", "read"],
)
def test_of_a_removed_segment_what_lies_between_position_and_end_is_lost(
    heard: int | None, position: int, told: int | None, losses: list[Loss]
) -> None:
    reader = Reader()
    reader.update(chain(Node("a", (), heard), Node("b", ("a",))))
    reader.advance("a", position)
    reader.removed("a", told)
    assert reader.losses == losses
    assert reader.readable() == ["b"]


def test_what_was_delivered_beyond_the_end_of_a_removed_segment_is_told_once() -> None:
    reader = Reader(positions={"a": 9})
    for _ in range(2):
        reader.removed("a", 7)
    assert reader.losses == [Loss("a", 7, 9)]
    assert reader.committed() == {"a": 7}


def test_of_a_removed_segment_that_a_later_position_implies_nothing_is_lost() -> None:
    reader = Reader(positions={"b": 1})
    reader.update(chain(Node("a", ()), Node("b", ("a",))))
    reader.removed("a", 7)
    assert reader.losses == []


def test_an_empty_segment_that_is_removed_is_no_loss() -> None:
    reader = Reader()
    reader.update(chain(Node("x", (), 4), Node("a", ("x",), 0), Node("b", ("a",))))
    reader.removed("a", 0)
    assert reader.losses == []


def test_latest_skips_what_is_sealed() -> None:
    reader = Reader()
    reader.update(chain(Node("a", (), 5), Node("b", ("a",))))
    reader.skip_to_latest()
    assert reader.readable() == ["b"]


@pytest.mark.parametrize("start", [{"b": 2}, {"b": 0}])
def test_whoever_has_a_position_in_a_segment_has_read_all_before_it(start: dict[str, int]) -> None:
    reader = Reader(positions=start)
    reader.update(chain(Node("x", (), 4), Node("a", ("x",)), Node("b", ("a",))))
    assert reader.readable() == ["b"]


def test_nothing_is_read_while_the_dag_is_older_than_a_position() -> None:
    reader = Reader(positions={"t-0-8-2": 4})
    first, second = Node("t-0-8-0", (), 9), Node("t-0-8-1", ("t-0-8-0",))
    reader.update(chain(first, second))
    assert reader.readable() == [], "all of this was read before"
    third = Node("t-0-8-2", ("t-0-8-1",))
    reader.update(chain(first, Node("t-0-8-1", ("t-0-8-0",), 9), third))
    assert reader.readable() == ["t-0-8-2"]


def entry(number: int) -> SealedSegment:
    """Segment ``number`` of a chain, sealed."""
    before = (f"t-0-8-{number - 1}",) if number else ()
    after = (f"t-0-8-{number + 1}",)
    return SealedSegment(f"t-0-8-{number}", number, KeyRange(0, 8), 10, before, after, Reason.CREATE, Reason.ROLL, 0, 0)


def living(number: int) -> Layout:
    """A layout whose only segment is ``number`` of the chain."""
    it = Segment(f"t-0-8-{number}", number, KeyRange(0, 8), Phase.OPEN, Durability.STORED, (), (f"t-0-8-{number - 1}",))
    return Layout("default/t", "u", 8, next_number=number + 1, segments=(it,))


def test_an_index_that_lacks_a_predecessor_is_behind_unless_retention_removed_it() -> None:
    layout, whole = living(3), [entry(0), entry(1), entry(2)]
    assert not index_is_behind(layout, whole)
    assert index_is_behind(layout, whole[:2]), "read before the last entry was appended"
    assert index_is_behind(layout, whole[1:]), "an entry in the middle refers to what is not there"
    assert not index_is_behind(layout, whole[1:], ((0, 1),))
    assert not index_is_behind(layout, [], ((0, 3),))
    assert index_is_behind(layout, [], ((0, 2),))


def test_a_layout_that_does_not_know_what_the_index_has_is_behind() -> None:
    layout = living(3)
    assert not layout_is_behind(layout, [entry(0), entry(1), entry(2)])
    assert not layout_is_behind(layout, [], ((0, 3),))
    assert layout_is_behind(layout, [entry(2), entry(4)]), "it has not heard of that one"
    assert layout_is_behind(layout, [], ((0, 5),)), "nor of one that was removed"
    assert layout_is_behind(layout, [entry(3)]), "nor that its own one is being replaced"
    assert layout_is_behind(layout, [], ((0, 4),)), "nor that it was removed"
    sealing = replace(layout.segments[0], phase=Phase.SEALING, successors=("t-0-8-4",))
    assert not layout_is_behind(replace(layout, segments=(sealing,)), [entry(3)]), "the index hears of a seal first"


def test_an_index_with_more_than_left_the_layout_does_not_hide_what_is_missing() -> None:
    assert index_is_behind(living(3), [entry(0), entry(1), entry(3)]), "the same count, but not the same segments"
