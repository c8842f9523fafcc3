from __future__ import annotations

from dataclasses import replace

from smq_core.model.entities import Durability, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.scaling.placement import BrokerView
from smq_core.scaling.rebalancing import load_by_broker, plan_moves


def broker(name: str, **view: object) -> BrokerView:
    return BrokerView(replica=Replica(name, name, ""), **view)  # type: ignore[arg-type]


def segment(number: int, *brokers: str) -> Segment:
    replicas = tuple(Replica(b, b, "") for b in brokers)
    return Segment(
        name=f"s{number}",
        number=number,
        range=KeyRange(number, number + 1),
        phase=Phase.OPEN,
        durability=Durability.REPLICATED,
        replicas=replicas,
    )


def moves(
    segments: list[Segment], pressures: dict[str, float], brokers: list[BrokerView], most: int = 8
) -> list[tuple[str, ...]]:
    by_name = {b.replica.incarnation: b for b in brokers}
    found = plan_moves(segments, pressures, by_name, segments, most, {})
    return [(m.segments[0], *(replica.broker for replica in m.replacement or ())) for m in found]


def test_a_follower_counts_half() -> None:
    assert load_by_broker([segment(0, "a", "b")], {"s0": 2.0}) == {"a": 2.0, "b": 1.0}


def test_a_new_broker_takes_its_share_at_once() -> None:
    """Many small segments on saturated brokers: none alone is worth much, together they are."""
    segments = [segment(n, *("ab", "ba")[n % 2]) for n in range(8)]
    found = moves(segments, {s.name: 0.4 for s in segments}, [broker("a"), broker("b"), broker("c")])
    assert len(found) >= 2 and {to for _, _, to in found} == {"c"}
    assert len({name for name, _, _ in found}) == len(found), "a segment was moved twice in one round"


def test_what_would_only_turn_the_gap_around_stays() -> None:
    assert moves([segment(0, "a"), segment(1, "a")], {"s0": 1.5, "s1": 0.02}, [broker("a"), broker("b")]) == []


def test_small_differences_are_left_alone() -> None:
    segments = [segment(n, "a") for n in range(9)]
    assert moves(segments, {s.name: 0.1 for s in segments}, [broker("a"), broker("b")]) == []


def test_a_broker_that_cannot_be_relieved_does_not_hide_the_next() -> None:
    segments = [segment(0, "a"), *(segment(n, "b") for n in range(1, 5))]
    pressures = {"s0": 3.0, **{f"s{n}": 0.6 for n in range(1, 5)}}
    found = moves(segments, pressures, [broker("a"), broker("b"), broker("c")])
    assert found and all((away, to) == ("b", "c") for _, away, to in found)


def test_replicas_stay_apart() -> None:
    brokers = [broker("a", zone="1"), broker("b", zone="2"), broker("c", zone="2"), broker("d", zone="1")]
    segments = [segment(n, "a", "b") for n in range(8)]
    for name, away, to in moves(segments, {s.name: 0.5 for s in segments}, brokers):
        zones = {"a": "1", "b": "2", "c": "2", "d": "1"}
        assert zones[away] == zones[to], (name, away, to)


def test_other_topics_count() -> None:
    segments = [segment(n, "a") for n in range(4)]
    pressures = {s.name: 0.5 for s in segments}
    idle, busy = broker("b"), broker("b", load=5.0)
    assert moves(segments, pressures, [broker("a"), idle])
    assert moves(segments, pressures, [broker("a"), busy]) == []


def test_never_to_a_broker_that_drains() -> None:
    segments = [segment(n, "a") for n in range(4)]
    draining = replace(broker("b"), draining=True)
    assert moves(segments, {s.name: 0.5 for s in segments}, [broker("a"), draining]) == []


def test_equally_full_brokers_are_relieved_in_the_order_of_their_names() -> None:
    """A set of names has another order in every process; a history must not depend on it."""
    full = [f"b{n:02}" for n in range(20)]
    segments = [segment(n, full[n % 20]) for n in range(80)]
    idle = [broker(f"c{n}") for n in range(4)]
    found = moves(segments, {s.name: 1.0 for s in segments}, [*map(broker, reversed(full)), *idle], most=4)
    assert [away for _, away, _ in found] == full[:4]
