"""A changed schema seals every segment of an older version, and its successors have the new one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.errors import Conflict
from smq_core.model.entities import Column, Durability, Liveness, Phase, Reason, Replica, TopicSchema
from smq_core.model.layout_transitions import plan
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.answers import ChangeRequested, LayoutRead
from smq_core.reconcile.effects import AppendIndex, PutLayout
from smq_core.reconcile.seal_progress import RELEASE_DELAY
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_core.scaling.placement import BrokerView
from support.in_memory.reconciler import ReconcilerHarness, kinds

FIRST = (Column("flight", "string"), Column("delay", "int16"))
GATE = Column("gate", "string", nullable=True)
BELT = Column("belt", "int8", nullable=True)


def typed(**spec: object) -> ReconcilerHarness:
    return ReconcilerHarness(schema=FIRST, key="flight", **spec).begun()


def put_of(harness: ReconcilerHarness) -> PutLayout:
    (put,) = [effect for effect in harness.step() if isinstance(effect, PutLayout)]
    return put


def sealing(harness: ReconcilerHarness) -> list[str]:
    """The segments that are being sealed, from plan to seal chunk."""
    layout, leader = harness.layout, harness.leader
    return [s.name for s in layout.segments if s.phase is Phase.SEALING and leader.outcome(s.name) is None]


def test_segments_move_to_the_new_version_one_after_another() -> None:
    harness = typed(min_segments=4)
    assert harness.layout.schemas == (TopicSchema(0, FIRST),)
    olds = harness.layout.segments
    harness.leader.columns = (*FIRST, GATE)
    layout = put_of(harness).layout
    assert layout.schemas == (TopicSchema(0, FIRST), TopicSchema(1, (*FIRST, GATE)))
    (new,) = (s for s in layout.segments if s.schema_version == 1)
    (old,) = (layout.segment(name) for name in new.predecessors)
    assert (old.phase, old.sealed_because, new.range) == (Phase.SEALING, Reason.SCHEMA, old.range)
    assert new.replicas == old.replicas, "a schema change moves nothing"
    (decision,) = [d for d in harness.leader.decisions if d.action == "schema"]
    assert decision.segments == tuple(s.name for s in olds), "one decision for all of them"
    assert decision.reason == "schema version 1: column 'gate' (string, nullable) is new"

    harness.put(PutLayout(layout, None))
    stalled = []
    while any(s.schema_version == 0 for s in harness.layout.segments):
        harness.answer(harness.step() or harness.step(RELEASE_DELAY))
        stalled.append(sealing(harness))
    assert max(map(len, stalled)) == 1
    harness.run()
    assert [s.range for s in sorted(harness.layout.segments, key=lambda s: s.range)] == [s.range for s in olds]
    assert [d.action for d in harness.leader.decisions].count("schema") == 1


def test_the_next_segment_does_not_wait_for_the_cleanup_of_the_one_before() -> None:
    harness = typed(min_segments=4)
    harness.leader.columns = (*FIRST, GATE)
    for _ in range(20):
        effects = harness.step()  # never long enough for the cleanup after a seal
        harness.answer(effects)
    outdated = [s for s in harness.layout.segments if not s.successors and s.schema_version == 0]
    assert not outdated


def test_a_further_change_enters_the_layout_while_segments_wait_for_their_turn() -> None:
    """Whoever changes the schema waits until the layout has it, and not until the change before is done."""
    harness = typed(min_segments=4)
    harness.leader.columns = (*FIRST, GATE)
    harness.answer(harness.step())
    harness.leader.columns = (*FIRST, GATE, BELT)
    layout = put_of(harness).layout
    assert [s.version for s in layout.schemas] == [0, 1, 2]
    assert [s.name for s in layout.segments if s.phase is Phase.SEALING] == sealing(harness)
    assert [d.action for d in harness.leader.decisions].count("schema") == 2


def test_a_new_leader_continues_where_the_one_before_stopped() -> None:
    harness = typed(min_segments=4)
    harness.leader.columns = (*FIRST, GATE)
    harness.answer(harness.step())
    assert len(sealing(harness)) == 1
    follower = typed(min_segments=4)
    follower.stored, follower.etag = harness.stored, harness.etag
    follower.leader = TopicReconciler(follower.leader.topic, unique=lambda: "another")
    follower.leader.columns = (*FIRST, GATE)
    follower.run(40)
    assert {s.schema_version for s in follower.layout.segments} == {1}
    assert all(s.phase is Phase.OPEN for s in follower.layout.segments)


def test_the_index_says_which_version_a_segment_had() -> None:
    harness = typed()
    harness.leader.columns = (*FIRST, GATE)
    effects = harness.run()
    (old,) = next(e for e in effects if isinstance(e, AppendIndex)).entries
    assert (old.schema_version, old.sealed_because) == (0, Reason.SCHEMA)
    harness.leader.columns = (*FIRST, GATE, BELT)
    (next_,) = next(e for e in harness.run() if isinstance(e, AppendIndex)).entries
    assert (next_.schema_version, next_.opened_because) == (1, Reason.SCHEMA)
    assert [s.schema_version for s in harness.layout.segments] == [2]


def test_the_same_columns_in_another_order_seal_nothing() -> None:
    harness = typed()
    harness.leader.columns = FIRST[::-1]
    assert harness.step() == []


def test_a_change_that_is_not_allowed_changes_nothing_and_is_reported() -> None:
    harness = typed()
    harness.leader.columns = (FIRST[0], Column("delay", "string"))
    assert harness.step() == []
    assert "column 'delay' cannot change from int16 to string" in str(harness.leader.schema_problem)
    harness.leader.columns = FIRST
    assert harness.step() == []
    assert harness.leader.schema_problem is None


def test_pending_segments_of_the_old_version_open_first() -> None:
    """If they were replaced, the writers of their predecessor would wait for one more seal."""
    harness = typed()
    harness.handle(ChangeRequested(SegmentChange(SegmentAction.SPLIT, ("t-0-16-0",), (8,))))
    harness.answer([put_of(harness)])
    harness.leader.columns = (*FIRST, GATE)
    effects = harness.step()
    assert "PutLayout" not in kinds(effects)
    harness.answer(effects)
    harness.run(60)
    assert [s.schema_version for s in harness.layout.segments] == [1, 1]


def test_a_segment_with_too_few_replicas_gets_all_of_them() -> None:
    harness = ReconcilerHarness(schema=FIRST, key="flight", brokers=1).begun()
    assert len(harness.layout.segments[0].replicas) == 1
    harness.brokers["i9"] = BrokerView(replica=Replica("b9", "i9", "h:9"))
    harness.leader.columns = (*FIRST, GATE)
    layout = put_of(harness).layout
    (new,) = (s for s in layout.segments if s.schema_version == 1)
    assert len(new.replicas) == 2 and new.durability is Durability.REPLICATED


def test_another_reason_in_the_same_step_gives_the_new_version_too() -> None:
    harness = typed(min_segments=2)
    harness.leader.columns = (*FIRST, GATE)
    harness.handle(ChangeRequested(SegmentChange(SegmentAction.SPLIT, ("t-0-8-0",), (4,))))
    harness.lose(harness.layout.segment("t-8-16-1").primary.incarnation, Liveness.SUSPECT)
    layout = put_of(harness).layout
    assert {s.schema_version for s in layout.segments if not s.successors} == {1}
    assert harness.leader.decisions[-1].action == "schema", "the decision says why the version is a new one"


def test_without_brokers_for_successors_the_schema_stays() -> None:
    """Producers must not get a version that no segment has."""
    harness = typed()
    harness.leader.columns = (*FIRST, GATE)
    brokers, harness.brokers = harness.brokers, {}
    assert [e for e in harness.step() if isinstance(e, PutLayout)] == []
    harness.brokers = brokers
    assert put_of(harness).layout.schemas[-1].version == 1


def test_a_leader_that_lost_the_race_does_not_change_the_schema_twice() -> None:
    first, second = typed(), typed()
    for harness in (first, second):
        harness.leader.columns, harness.leader.generation = (*FIRST, GATE), 2
    written = put_of(first)
    assert put_of(second).etag == written.etag
    second.fail(written, Conflict(""))
    assert kinds(second.step()) == ["ReadLayout"]
    second.handle(LayoutRead(written.layout, "theirs"))
    assert [e for e in second.step() if isinstance(e, PutLayout)] == []


def test_a_leader_with_an_older_desired_state_drops_no_column() -> None:
    """It lacks the column because it has not seen the change yet. Its name could never be used again."""
    harness = typed()
    harness.leader.columns, harness.leader.generation = (*FIRST, GATE), 7
    harness.run()
    harness.leader.columns, harness.leader.generation = FIRST, 6
    assert harness.step() == []
    harness.leader.generation = 8
    assert put_of(harness).layout.schemas[-1] == TopicSchema(2, FIRST, ("gate",), 8)


def test_a_layout_of_the_release_before_has_the_stored_columns_as_version_0() -> None:
    harness = typed()
    harness.stored = replace(harness.layout, schemas=())
    harness.leader.layout = harness.stored
    assert harness.step() == [], "without a change nothing is sealed"
    harness.leader.columns = (*FIRST, GATE)
    layout = put_of(harness).layout
    assert layout.schemas == (TopicSchema(0, FIRST), TopicSchema(1, (*FIRST, GATE)))
    assert [s.schema_version for s in layout.segments] == [0, 1]


def test_a_topic_without_a_schema_stays_without() -> None:
    harness = ReconcilerHarness().begun()
    harness.leader.columns = FIRST
    assert harness.step() == []
    assert "cannot get a schema" in str(harness.leader.schema_problem)
    harness.handle(ChangeRequested(SegmentChange(SegmentAction.ROLL, ("t-0-16-0",))))
    assert put_of(harness).layout.schemas == ()


def test_a_layout_has_the_versions_of_its_segments_and_the_newest_one() -> None:
    harness = typed(min_segments=4)
    harness.leader.columns = (*FIRST, GATE)
    while any(s.schema_version == 0 for s in harness.layout.segments):
        assert [s.version for s in harness.layout.schemas] in ([0], [0, 1])
        harness.answer(harness.step() or harness.step(RELEASE_DELAY))
    assert harness.layout.schemas == (TopicSchema(1, (*FIRST, GATE)),)
    harness.leader.columns = FIRST
    harness.run(60)
    assert harness.layout.schemas == (TopicSchema(2, FIRST, ("gate",)),), "a dropped name is never forgotten"
    harness.leader.columns = (*FIRST, GATE)
    assert harness.step() == []
    assert "was dropped before" in str(harness.leader.schema_problem)


def test_a_plan_keeps_the_versions_of_the_layout() -> None:
    harness = typed()
    other = (TopicSchema(0, (GATE,)), TopicSchema(1, FIRST))
    with pytest.raises(ValueError, match="can only get a further version"):
        plan(harness.layout, [], schemas=other, now=1, writer="w")
