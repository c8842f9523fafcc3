"""Whatever the DAG, the limits and the groups: retention never opens a hole, nor takes what a group has to read."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.model.entities import Reason, SealedSegment, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.reading.segment_dag import ReadProgress, build_nodes
from smq_core.reconcile.retention import GroupProgress, plan_retention

NOW = 1000


@st.composite
def dags(draw: st.DrawFn) -> list[SealedSegment]:
    """Sealed segments with edges from lower to higher numbers, some already removed at the old end."""
    count = draw(st.integers(1, 10))
    made: list[SealedSegment] = []
    for number in range(count):
        before = tuple(f"t-0-8-{p}" for p in range(number) if p >= number - 3 and draw(st.booleans())) or (
            (f"t-0-8-{number - 1}",) if number else ()
        )
        end, size, at = draw(st.integers(0, 3)), draw(st.integers(0, 50)), draw(st.integers(0, NOW))
        made.append(
            SealedSegment(
                name=f"t-0-8-{number}",
                number=number,
                range=KeyRange(0, 8),
                end=end,
                predecessors=before,
                successors=(),
                opened_because=Reason.ROLL,
                sealed_because=Reason.ROLL,
                opened_at=0,
                sealed_at=at,
                bytes=size,
            )
        )
    return [
        replace(it, successors=tuple(o.name for o in made if it.name in o.predecessors) or (f"t-0-8-{count}",))
        for it in made
    ]


@st.composite
def group_of(draw: st.DrawFn, sealed: list[SealedSegment], name: str) -> tuple[GroupProgress, ReadProgress]:
    """A group that got somewhere by reading in the DAG's order."""
    reader = ReadProgress(build_nodes(sealed, None))
    for _ in range(draw(st.integers(0, 12))):
        readable = reader.readable()
        if not readable:
            break
        segment = draw(st.sampled_from(readable))
        reader.advance(segment, draw(st.integers(0, reader.nodes[segment].end or 0)))
    seen = draw(st.none() | st.integers(0, NOW))
    return GroupProgress(name, dict(reader.committed()), seen), reader


@settings(max_examples=150)
@given(st.data())
def test_what_is_removed_was_read_and_leaves_no_hole(data: st.DataObject) -> None:
    sealed = data.draw(dags())
    groups = [data.draw(group_of(sealed, name)) for name in ("a", "b")[: data.draw(st.integers(0, 2))]]
    limits = st.none() | st.integers(1, NOW)
    spec = TopicSpec(
        retention_age=data.draw(limits),
        retention_bytes=data.draw(st.none() | st.integers(1, 200)),
        retention_keeps_unread=data.draw(st.booleans()),
        retention_abandoned_after=data.draw(limits),
    )
    needed = data.draw(st.sets(st.sampled_from([s.name for s in sealed])))
    verdict = plan_retention(spec, sealed, [state for state, _ in groups], NOW, needed)
    gone = [removal.segment.name for removal in verdict.removals]
    left = {s.name: s for s in sealed if s.name not in gone}
    assert len(set(gone)) == len(gone)
    assert not set(gone) & needed
    before = dict.fromkeys(s.name for s in sealed)
    for removal in verdict.removals:
        del before[removal.segment.name]
        assert not set(removal.segment.predecessors) & before.keys(), "a predecessor is left"
        too_old = spec.retention_age is not None and NOW - removal.segment.sealed_at > spec.retention_age
        assert too_old or spec.retention_bytes is not None, "no limit asked for it"
        for state, reader in groups:
            read = removal.segment.end == 0 or reader.is_read(removal.segment.name)
            assert read or state.name in removal.unread, "a group that loses something is not named"
            abandoned = (
                state.last_active_at is not None
                and spec.retention_abandoned_after is not None
                and NOW - state.last_active_at > spec.retention_abandoned_after
            )
            assert read or abandoned or not spec.retention_keeps_unread, "an active group had not read it yet"
    if spec.retention_age is None and spec.retention_bytes is None:
        assert not gone
    again = plan_retention(spec, list(left.values()), [state for state, _ in groups], NOW, needed)
    assert not again.removals, "a second look finds nothing more to do"


@settings(max_examples=80)
@given(st.data())
def test_a_group_goes_on_as_if_nothing_was_removed(data: st.DataObject) -> None:
    sealed = data.draw(dags())
    state, reader = data.draw(group_of(sealed, "g"))
    spec = TopicSpec(retention_age=data.draw(st.integers(1, NOW)))
    gone = {r.segment.name for r in plan_retention(spec, sealed, [state], NOW).removals}
    after = ReadProgress(build_nodes([s for s in sealed if s.name not in gone], None), dict(state.positions))
    after.update({})
    # An empty segment that went may let a reader into what follows it earlier than the walk would have.
    lively = {name for name in reader.readable() if reader.nodes[name].end}
    assert lively <= set(after.readable())
    assert not gone & lively


def test_what_a_needed_segment_that_ended_empty_may_refer_to_is_kept() -> None:
    """Its seal chunk may name its predecessors in place of their producers."""
    ends = (5, 5, 0, 0)
    sealed = [
        SealedSegment(
            name=f"t-0-8-{n}",
            number=n,
            range=KeyRange(0, 8),
            end=end,
            predecessors=(f"t-0-8-{n - 1}",) if n else (),
            successors=(f"t-0-8-{n + 1}",),
            opened_because=Reason.ROLL,
            sealed_because=Reason.ROLL,
            opened_at=0,
            sealed_at=0,
        )
        for n, end in enumerate(ends)
    ]
    spec = TopicSpec(retention_age=1)
    removed = [r.segment.name for r in plan_retention(spec, sealed, [], NOW, {"t-0-8-3"}).removals]
    assert removed == ["t-0-8-0"], "the third and the second one ended empty"
    assert len(plan_retention(spec, sealed, [], NOW).removals) == 4
