"""Which segments are sealed in one round, why, and what succeeds them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model.entities import Durability, Layout, Liveness, Reason, Replica, TopicSpec
from smq_core.model.keyspace import KeyRange, split_evenly
from smq_core.model.layout_transitions import SealPlan, Successor, create, plan
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.seal_planner import RequestOutcome, plan_seals
from smq_core.scaling.placement import BrokerView

R = [Replica(f"b{i}", f"i{i}", f"h:{i}") for i in range(5)]
SPEC = TopicSpec(partitions=16)


def brokers(count: int = 4, **states: Liveness | str) -> dict[str, BrokerView]:
    """Live brokers i0.., except those named: a liveness, or ``draining``, or ``absent``."""
    found = {r.incarnation: BrokerView(replica=r) for r in R[:count]}
    for name, state in states.items():
        if state == "absent":
            del found[name]
        elif state == "draining":
            found[name] = replace(found[name], draining=True)
        else:
            found[name] = replace(found[name], liveness=Liveness(state))
    return found


def layout(parts: int = 1, replicas: tuple[Replica, ...] = (R[0], R[1])) -> Layout:
    durability = Durability.REPLICATED if len(replicas) > 1 else Durability.STORED
    made = [Successor(r, replicas, durability) for r in split_evenly(KeyRange(0, 16), parts)]
    return create("default/t", "uid", 16, made, now=0, writer="w")


def plans(it: Layout, alive: dict[str, BrokerView], spec: TopicSpec = SPEC, **more: object) -> list[SealPlan]:
    return plan_seals(spec, it, alive, more.pop("requests", []), now=9, **more)[0]  # type: ignore[arg-type]


def test_nothing_is_decided_when_all_is_well():
    assert plan_seals(SPEC, layout(3), brokers(), [], now=1) == ([], [], RequestOutcome([], {}))


@pytest.mark.parametrize(
    ("state", "words"),
    [("gone", "b0 is gone"), ("suspect", "b0 does not answer"), ("absent", "b0 does not answer")],
)
def test_a_segment_leaves_a_broker_that_does_not_serve(state, words):
    it = layout()
    made, decisions, _ = plan_seals(SPEC, it, brokers(4, i0=state), [], now=9)
    (only,) = made
    assert (only.segments, only.reason) == ((it.segments[0].name,), Reason.FAILOVER)
    assert R[0] not in only.successors[0].replicas and len(only.successors[0].replicas) == 2
    assert R[1] in only.successors[0].replicas, "it stays where it can"
    assert words in decisions[0].reason and decisions[0].topic == "default/t"


def test_a_pending_segment_leaves_too():
    it = plan(
        layout(),
        [SealPlan(("t-0-16-0",), Reason.ROLL, (Successor(KeyRange(0, 16), (R[0], R[1]), SPEC.durability),))],
        now=1,
        writer="w",
    )
    (only,) = plans(it, brokers(4, i0="gone"))
    assert only.segments == ("t-0-16-1",)


def test_one_that_can_never_be_opened_there_goes_elsewhere():
    (only,) = plans(layout(), brokers(), refused={("t-0-16-0", "i1")})
    assert only.reason is Reason.FAILOVER
    assert R[1] not in only.successors[0].replicas, "the broker that refused comes last"


def test_a_broker_in_cooldown_keeps_its_segments_and_gets_no_new_ones():
    assert plans(layout(), brokers(), cooling_down={"i1"}) == []
    (only,) = plans(layout(), brokers(2), refused={("t-0-16-0", "i1")}, cooling_down={"i1"})
    assert only.successors[0].replicas == (R[0],)
    degraded = layout(replicas=(R[0],))
    assert plans(degraded, brokers(2), cooling_down={"i1"}) == [], "there are no more replicas to be had now"
    assert plans(degraded, brokers(2)) != []


def test_with_one_broker_left_the_successor_is_stored():
    (only,) = plans(layout(), brokers(2, i0="gone"))
    assert only.successors[0].durability is Durability.STORED
    assert only.successors[0].replicas == (R[1],)


def test_with_no_broker_left_nothing_can_be_planned():
    assert plans(layout(), brokers(2, i0="suspect", i1="suspect")) == []


def test_replicas_come_back_when_there_are_brokers_again():
    (only,) = plans(layout(replicas=(R[0],)), brokers(2))
    assert only.reason is Reason.REBALANCE
    assert len(only.successors[0].replicas) == 2
    assert plans(layout(replicas=(R[0],)), brokers(1)) == []


def test_a_topic_that_shall_be_stored_gives_up_its_replicas():
    spec = replace(SPEC, durability=Durability.STORED)
    (only,) = plans(layout(), brokers(), spec)
    assert only.successors[0].durability is Durability.STORED and len(only.successors[0].replicas) == 1


def test_a_drain_is_paced_and_a_failover_is_not():
    it = layout(8)
    drained = plans(it, brokers(4, i0="draining"))
    assert 1 <= len(drained) < 8 and all(p.reason is Reason.DRAIN for p in drained)
    assert len(plans(it, brokers(4, i0="gone"))) == 8
    assert all(R[0] not in s.replicas for p in drained for s in p.successors)


def test_what_has_not_opened_yet_need_not_wait_its_turn_in_a_drain():
    before = layout(2)
    first, rolled = before.segments
    roll = SealPlan((rolled.name,), Reason.MANUAL, (Successor(rolled.range, (R[0], R[1]), Durability.REPLICATED),))
    it = plan(before, [roll], now=1, writer="w2")
    pending = it.segments[-1]
    assert pending.predecessors == (rolled.name,)
    drained = plans(it, brokers(4, i0="draining"))
    assert {p.segments for p in drained} == {(first.name,), (pending.name,)}
    (only,) = [p for p in drained if p.segments == (pending.name,)]
    it = plan(it, [only], now=2, writer="w3")
    assert {p.segments for p in plans(it, brokers(4, i0="draining"))} == {(first.name,)}, "nor does it take a turn"


def test_a_gone_follower_is_a_failover_even_if_the_primary_drains():
    (only,) = plans(layout(), brokers(4, i0="draining", i1="gone"))
    assert only.reason is Reason.FAILOVER


def test_a_segment_that_is_being_sealed_is_left_alone():
    it = plan(
        layout(),
        [SealPlan(("t-0-16-0",), Reason.ROLL, (Successor(KeyRange(0, 16), (R[2], R[3]), SPEC.durability),))],
        now=1,
        writer="w",
    )
    assert plans(it, brokers(4, i0="gone")) == []


@pytest.mark.parametrize(
    ("request_", "ranges"),
    [
        (SegmentChange(SegmentAction.SPLIT, ("t-0-8-0",)), [KeyRange(0, 4), KeyRange(4, 8)]),
        (SegmentChange(SegmentAction.SPLIT, ("t-0-8-0",), (2, 3)), [KeyRange(0, 2), KeyRange(2, 3), KeyRange(3, 8)]),
        (SegmentChange(SegmentAction.MERGE, ("t-8-16-1", "t-0-8-0")), [KeyRange(0, 16)]),
        (SegmentChange(SegmentAction.ROLL, ("t-0-8-0",)), [KeyRange(0, 8)]),
        (SegmentChange(SegmentAction.MOVE, ("t-0-8-0",)), [KeyRange(0, 8)]),
    ],
)
def test_manual_requests_are_planned(request_, ranges):
    made, _, followed = plan_seals(SPEC, layout(2), brokers(), [request_], now=9)
    assert followed == RequestOutcome([], {})
    assert [s.range for s in made[0].successors] == ranges
    assert made[0].reason is Reason.MANUAL
    assert set(made[0].segments) == set(request_.segments)


def test_a_request_waits_for_what_is_more_urgent():
    it = layout(2)
    request = SegmentChange(SegmentAction.SPLIT, ("t-0-8-0",))
    made, _, followed = plan_seals(SPEC, it, brokers(4, i0="gone"), [request], now=9)
    assert followed.waiting == [request] and all(p.reason is Reason.FAILOVER for p in made)


def test_a_request_waits_for_brokers():
    request = SegmentChange(SegmentAction.ROLL, ("t-0-16-0",))
    assert plan_seals(SPEC, layout(), {}, [request], now=9)[2].waiting == [request]


def test_a_request_that_makes_no_sense_any_more_is_given_up_with_the_reason():
    request = SegmentChange(SegmentAction.SPLIT, ("t-0-16-7",))
    made, _, followed = plan_seals(SPEC, layout(), brokers(), [request], now=9)
    assert not made and not followed.waiting
    assert "no open segment 't-0-16-7'" in followed.rejected[request]


def sealing(parts: int = 1) -> Layout:
    new = tuple(Successor(r, (R[2], R[3]), Durability.REPLICATED) for r in split_evenly(KeyRange(0, 16), parts))
    return plan(layout(), [SealPlan(("t-0-16-0",), Reason.FAILOVER, new)], now=1, writer="w")


@pytest.mark.parametrize("action", [SegmentAction.ROLL, SegmentAction.MOVE])
def test_whatever_seals_a_segment_rolls_and_moves_it(action):
    made, _, followed = plan_seals(SPEC, sealing(), brokers(), [SegmentChange(action, ("t-0-16-0",))], now=9)
    assert not made and followed == RequestOutcome([], {})


def test_a_split_that_another_change_came_before_is_given_up_and_one_that_was_made_is_not():
    request = SegmentChange(SegmentAction.SPLIT, ("t-0-16-0",))
    other = plan_seals(SPEC, sealing(), brokers(), [request], now=9)[2]
    assert "only open segments can change" in other.rejected[request]
    assert plan_seals(SPEC, sealing(parts=2), brokers(), [request], now=9)[2] == RequestOutcome([], {})


def test_two_requests_for_one_segment_are_done_one_after_the_other():
    first, second = SegmentChange(SegmentAction.ROLL, ("t-0-16-0",)), SegmentChange(SegmentAction.SPLIT, ("t-0-16-0",))
    made, _, followed = plan_seals(SPEC, layout(), brokers(), [first, second], now=9)
    assert len(made) == 1 and followed.waiting == [second]


def test_what_load_and_age_require_comes_last():
    it = layout(4)
    changes = [
        SegmentChange(SegmentAction.SPLIT, ("t-0-4-0",), (2,), "hot"),
        SegmentChange(SegmentAction.ROLL, ("t-4-8-1",), because="old"),
        SegmentChange(SegmentAction.MERGE, ("t-8-12-2", "t-12-16-3"), because="quiet"),
    ]
    made = plans(it, brokers(), changes=changes, requests=[SegmentChange(SegmentAction.ROLL, ("t-0-4-0",))])
    assert [p.reason for p in made] == [Reason.MANUAL, Reason.ROLL, Reason.MERGE]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (SegmentChange(SegmentAction.SPLIT, ("t-0-8-9",)), "no open segment 't-0-8-9'"),
        (SegmentChange(SegmentAction.SPLIT, ("t-0-8-0", "t-8-16-1")), "exactly one"),
        (SegmentChange(SegmentAction.MERGE, ("t-0-8-0",)), "two or more"),
        (SegmentChange(SegmentAction.SPLIT, ("t-0-8-0",), (8,)), "between 1 and 7"),
        (SegmentChange(SegmentAction.SPLIT, ("t-0-8-0",), (0,)), "between 1 and 7"),
    ],
)
def test_a_request_that_cannot_be_carried_out_says_why(request_, words):
    with pytest.raises(ValueError, match=words):
        request_.validate(layout(2))


def test_segments_that_are_not_neighbours_cannot_be_merged():
    with pytest.raises(ValueError, match="adjacent"):
        SegmentChange(SegmentAction.MERGE, ("t-0-4-0", "t-8-12-2")).validate(layout(4))


def test_only_open_segments_change():
    it = plan(
        layout(),
        [SealPlan(("t-0-16-0",), Reason.ROLL, (Successor(KeyRange(0, 16), (R[2], R[3]), SPEC.durability),))],
        now=1,
        writer="w",
    )
    for name in ("t-0-16-0", "t-0-16-1"):
        with pytest.raises(ValueError, match="only open segments"):
            SegmentChange(SegmentAction.ROLL, (name,)).validate(it)
