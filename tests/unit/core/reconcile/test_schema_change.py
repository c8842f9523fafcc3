"""A changed schema seals every segment of an older version, and its successors have the new one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model.entities import Column, Liveness, Phase, Reason, TopicSchema
from smq_core.model.layout_transitions import plan
from smq_core.reconcile.effects import AppendIndex, PutLayout
from smq_core.reconcile.seal_planner import ManualRequest
from support.in_memory.reconciler import ReconcilerHarness, kinds

FIRST = (Column("flight", "string"), Column("delay", "int16"))
GATE = Column("gate", "string", nullable=True)
BELT = Column("belt", "int8", nullable=True)


def typed(**spec: object) -> ReconcilerHarness:
    return ReconcilerHarness(schema=FIRST, key="flight", **spec).begun()


def put_of(harness: ReconcilerHarness) -> PutLayout:
    (put,) = [effect for effect in harness.step() if isinstance(effect, PutLayout)]
    return put


def test_all_segments_move_to_the_new_version_in_one_put() -> None:
    harness = typed(min_segments=4)
    assert harness.layout.schemas == (TopicSchema(0, FIRST),)
    harness.leader.columns = (*FIRST, GATE)
    layout = put_of(harness).layout
    assert layout.schemas == (TopicSchema(0, FIRST), TopicSchema(1, (*FIRST, GATE)))
    olds, news = ([s for s in layout.segments if s.schema_version == version] for version in (0, 1))
    assert len(olds) == len(news) == 4
    assert all(s.phase is Phase.SEALING and s.sealed_because is Reason.SCHEMA for s in olds)
    assert [s.range for s in news] == [s.range for s in olds], "a schema change splits and merges nothing"
    decision = harness.leader.decisions[-1]
    assert (decision.action, decision.segments) == ("schema", tuple(s.name for s in olds))
    assert decision.reason == "schema version 1: column 'gate' (string, nullable) is new"


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


def test_pending_segments_of_the_old_version_are_replaced_too() -> None:
    harness = typed()
    harness.leader.requests.append(ManualRequest("split", ("t-0-16-0",), (8,)))
    harness.answer([put_of(harness)])
    harness.leader.columns = (*FIRST, GATE)
    layout = put_of(harness).layout
    assert sorted(s.schema_version for s in layout.segments if not s.successors) == [1, 1]
    assert sum(s.sealed_because is Reason.SCHEMA for s in layout.segments) == 2


def test_another_reason_in_the_same_step_gives_the_new_version_too() -> None:
    harness = typed(min_segments=2)
    harness.leader.columns = (*FIRST, GATE)
    harness.leader.requests.append(ManualRequest("split", ("t-0-8-0",), (4,)))
    harness.lose(harness.layout.segment("t-8-16-1").primary.incarnation, Liveness.SUSPECT)
    layout = put_of(harness).layout
    assert {s.schema_version for s in layout.segments if not s.successors} == {1}


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
    second.leader.layout_put_failed(second.now)
    assert kinds(second.step()) == ["ReadLayout"]
    second.leader.layout_read((written.layout, "theirs"))
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
    harness.leader.requests.append(ManualRequest("roll", ("t-0-16-0",)))
    assert put_of(harness).layout.schemas == ()


def test_the_history_of_a_layout_only_grows() -> None:
    harness = typed()
    other = (TopicSchema(0, (GATE,)), TopicSchema(1, FIRST))
    with pytest.raises(ValueError, match="can only grow"):
        plan(harness.layout, [], schemas=other, now=1, writer="w")
