"""The placer finds, without looking at every broker, what looking at every broker would find."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.model.entities import Durability, Replica
from smq_core.scaling.placement import BrokerView, Placer

names = st.integers(0, 11).map(str)


def view(name: int, node: int, zone: int, load: float, held: int, draining: bool) -> BrokerView:
    return BrokerView(
        replica=Replica(str(name), str(name), ""),
        draining=draining,
        node=f"n{node}" if node else "",
        zone=f"z{zone}" if zone else "",
        load=load,
        segments=held,
    )


views = st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from([0.0, 1.0]), st.integers(0, 4), st.booleans())
constraints = st.tuples(st.integers(1, 3), st.lists(names, max_size=3), st.lists(names, max_size=2))


def naively(
    brokers: list[BrokerView],
    given_out: dict[str, int],
    refusing: set[str],
    copies: int,
    preferred: list[str],
    avoid: list[str],
) -> list[str]:
    """The same, written down as it is meant."""
    chosen: list[BrokerView] = []
    while len(chosen) < min(copies, len(brokers)):
        chosen.append(
            min(
                (b for b in brokers if b not in chosen),
                key=lambda b: (
                    b.replica.incarnation in avoid,
                    b.replica.incarnation in refusing,
                    sum(bool(b.node) and c.node == b.node for c in chosen),
                    sum(bool(b.zone) and c.zone == b.zone for c in chosen),
                    b.segments + given_out.get(b.replica.incarnation, 0),
                    b.load,
                    b.replica.incarnation not in preferred,
                ),
            )
        )
    for rank, broker in enumerate(chosen):
        name = broker.replica.incarnation
        given_out[name] = given_out.get(name, 0) + (2 if rank == 0 else 1)
    return [b.replica.incarnation for b in chosen]


@settings(max_examples=300, deadline=None)
@given(st.lists(views, max_size=12), st.sets(names, max_size=2), st.lists(constraints, max_size=8))
def test_it_finds_the_best(
    made: list[tuple[int, int, float, int, bool]],
    refusing: set[str],
    wanted: list[tuple[int, list[str], list[str]]],
) -> None:
    brokers = {str(i): view(i, *what) for i, what in enumerate(made)}
    placer, given_out = Placer(brokers, avoid=refusing), dict[str, int]()
    there = [b for b in brokers.values() if b.accepts_segments]
    for copies, preferred, avoid in wanted:
        placed = placer.place(
            Durability.REPLICATED,
            copies,
            preferred=[Replica(n, n, "") for n in preferred],
            avoid=[Replica(n, n, "") for n in avoid],
        )
        expected = naively(there, given_out, refusing, copies, preferred, avoid)
        assert ([r.incarnation for r in placed.replicas] if placed is not None else []) == expected
