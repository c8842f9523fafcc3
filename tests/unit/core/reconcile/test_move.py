"""A manual move of a segment: its successor is on other brokers, as far as there are others."""

from __future__ import annotations

from smq_core.model.entities import Durability, Liveness, Replica, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.model.layout_transitions import Successor, create
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.seal_planner import plan_seals
from smq_core.scaling.placement import BrokerView

REPLICAS = [Replica(f"b-{i}", f"incarnation-{i}", f"h:{i}") for i in range(4)]


def moved(brokers: int) -> tuple[str, ...]:
    """The brokers of the successor of a segment on b-0 and b-1, when that number is alive."""
    spec = TopicSpec(partitions=8)
    first = Successor(KeyRange(0, 8), tuple(REPLICAS[:2]), Durability.REPLICATED)
    layout = create("default/f", "uid", 8, [first], now=0, writer="w")
    alive = {r.incarnation: BrokerView(replica=r, liveness=Liveness.ALIVE) for r in REPLICAS[:brokers]}
    plans, _, _ = plan_seals(
        spec, layout, alive, [SegmentChange(SegmentAction.MOVE, (layout.segments[0].name,))], now=1
    )
    return tuple(r.broker for r in plans[0].successors[0].replicas)


def test_a_moved_segment_goes_to_other_brokers() -> None:
    assert set(moved(4)) == {"b-2", "b-3"}


def test_with_too_few_others_its_primary_moves() -> None:
    assert moved(3)[0] == "b-2"


def test_with_no_others_it_stays() -> None:
    assert set(moved(2)) == {"b-0", "b-1"}
