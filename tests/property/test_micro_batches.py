"""Whatever splits and merges happen, micro-batches keep the order of each key, lose nothing, and come to the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.entities import RemovedSegment, segment_name
from smq_core.model.keyspace import KeyRange
from smq_core.reading.micro_batches import micro_batch_groups, next_positions, unread_removed_segments
from smq_core.reading.segment_dag import SegmentNode, build_nodes

PARTITIONS = 8


@dataclass
class Log:
    """A topic's history: segments in the order of their numbers, each with its rows."""

    nodes: dict[str, SegmentNode] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    ranges: dict[str, KeyRange] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def add(self, range_: KeyRange, rows: int, predecessors: tuple[str, ...]) -> None:
        name = segment_name("n/t", range_, len(self.nodes))
        for it in predecessors:
            self.nodes[it] = SegmentNode(it, self.nodes[it].predecessors, self.rows[it])
            self.open.remove(it)
        self.nodes[name] = SegmentNode(name, predecessors)
        self.rows[name] = rows
        self.ranges[name] = range_
        self.open.append(name)

    def split(self, name: str, at: int, rows: tuple[int, int]) -> None:
        """Two successors; both are added before the predecessor is closed."""
        range_ = self.ranges[name]
        low, high = KeyRange(range_.start, at), KeyRange(at, range_.stop)
        self.add(low, rows[0], (name,))
        self.open.append(name)
        self.add(high, rows[1], (name,))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log()
    sizes = st.integers(0, 30)
    log.add(KeyRange(0, PARTITIONS), draw(sizes), ())
    for _ in range(draw(st.integers(0, 12))):
        ordered = sorted(log.open, key=lambda name: log.ranges[name].start)
        wide = [name for name in ordered if len(log.ranges[name]) > 1]
        kind = draw(st.sampled_from(["split", "merge", "roll"]))
        if kind == "split" and wide:
            name = draw(st.sampled_from(wide))
            range_ = log.ranges[name]
            log.split(name, draw(st.integers(range_.start + 1, range_.stop - 1)), (draw(sizes), draw(sizes)))
        elif kind == "merge" and len(ordered) > 1:
            i = draw(st.integers(0, len(ordered) - 2))
            a, b = ordered[i : i + 2]
            log.add(KeyRange(log.ranges[a].start, log.ranges[b].stop), draw(sizes), (a, b))
        else:
            name = draw(st.sampled_from(ordered))
            log.add(log.ranges[name], draw(sizes), (name,))
    return log


def ancestors(log: Log) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, node in log.nodes.items():  # predecessors come first
        found[name] = set(node.predecessors).union(*(found[it] for it in node.predecessors))
    return found


@given(log=logs(), limit=st.none() | st.integers(1, 40), join=st.integers(1, 60), data=st.data())
def test_micro_batches_read_everything_once_and_in_order(
    log: Log, limit: int | None, join: int, data: st.DataObject
) -> None:
    positions: dict[str, int] = {next(iter(log.nodes)): 0}
    read: dict[str, int] = {}
    before_it = ancestors(log)
    for turn in range(1000):
        # At first a living segment has fewer rows than it will have.
        ends = {
            name: data.draw(st.integers(read.get(name, 0), rows)) if name in log.open and turn < 5 else rows
            for name, rows in log.rows.items()
        }
        following = dict(next_positions(log.nodes, positions, ends, limit, join))
        groups = micro_batch_groups(log.nodes, positions, following)
        stops = {it.segment: it.stop for group in groups for it in group}
        for group in groups:
            for at, range_ in enumerate(group):
                assert range_.start == read.get(range_.segment, 0), "no gap, nothing twice"
                assert range_.stop <= ends[range_.segment]
                for name in before_it[range_.segment]:
                    assert stops.get(name, read.get(name, 0)) == log.nodes[name].end, "ancestors are read to their ends"
                    if name in stops:
                        assert name in {it.segment for it in group[:at]}, "an ancestor comes before, in the same group"
        read |= stops
        if following == positions and turn >= 5:
            break
        positions = following
    assert {name: rows for name, rows in read.items() if rows} == {
        name: rows for name, rows in log.rows.items() if rows
    }


@given(log=logs(), join=st.integers(1, 60))
def test_a_repeated_micro_batch_has_the_same_groups_when_there_are_new_segments(log: Log, join: int) -> None:
    positions: dict[str, int] = {next(iter(log.nodes)): 0}
    following = next_positions(log.nodes, positions, log.rows, None, join)
    groups = micro_batch_groups(log.nodes, positions, following)
    for name in list(log.open):
        log.add(log.ranges[name], 5, (name,))
    assert micro_batch_groups(log.nodes, positions, following) == groups


@given(log=logs(), count=st.integers(0, 12), limit=st.integers(1, 60))
def test_exactly_the_removed_segments_that_were_not_read_are_lost(log: Log, count: int, limit: int) -> None:
    positions = dict(next_positions(log.nodes, {next(iter(log.nodes)): 0}, log.rows, limit, 1 << 40))
    groups = micro_batch_groups(log.nodes, {}, positions)
    read = {it.segment: it.stop for group in groups for it in group}
    gone = [name for name in log.nodes if name not in log.open][:count]
    removed = [
        RemovedSegment(name=name, number=number, end=log.rows[name], removed_at=0)
        for number, name in enumerate(log.nodes)
        if name in gone
    ]
    lost = {it.name for it in unread_removed_segments(positions, removed)}
    assert lost == {name for name in gone if read.get(name, 0) < log.rows[name]}


def test_a_long_history_of_small_segments_takes_one_micro_batch() -> None:
    log = Log()
    log.add(KeyRange(0, PARTITIONS), 10, ())
    for _ in range(200):
        log.add(KeyRange(0, PARTITIONS), 10, (log.open[0],))
    start = {next(iter(log.nodes)): 0}
    end = next_positions(log.nodes, start, log.rows, None, 1 << 20)
    (group,) = micro_batch_groups(log.nodes, start, end)
    assert sum(it.stop - it.start for it in group) == 2010


def test_large_segments_are_read_at_the_same_time_and_not_behind_their_predecessor() -> None:
    log = Log()
    log.add(KeyRange(0, PARTITIONS), 100, ())
    log.split(log.open[0], 4, (100, 100))
    start = {next(iter(log.nodes)): 0}
    first = next_positions(log.nodes, start, log.rows, None, 50)
    assert len(micro_batch_groups(log.nodes, start, first)) == 1
    second = next_positions(log.nodes, first, log.rows, None, 50)
    assert len(micro_batch_groups(log.nodes, first, second)) == 2


def test_a_limit_is_shared_in_proportion() -> None:
    log = Log()
    log.add(KeyRange(0, PARTITIONS), 0, ())
    log.split(log.open[0], 4, (900, 100))
    end = next_positions(log.nodes, {next(iter(log.nodes)): 0}, log.rows, 100, 1 << 20)
    assert sorted(end.values()) == [10, 90]


def test_nodes_come_from_index_and_layout() -> None:
    assert build_nodes([], None) == {}
