"""How many segments are sealed at the same time for a new schema, and which ones come first."""

from __future__ import annotations

from dataclasses import replace

from smq_core.model.entities import Durability, Layout, Liveness, Phase, Reason, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.reconcile.schema_rollout import SCHEMA_SHARE, segments_to_seal
from smq_core.scaling.placement import BrokerView

SEALING = {"phase": Phase.SEALING, "sealed_because": Reason.SCHEMA, "successors": ("next",)}


def segment(number: int, primary: str, version: int = 0, **more: object) -> Segment:
    replicas = (Replica(f"b-{primary}", primary, "h:1"), Replica("b-other", "other", "h:2"))
    made = Segment(
        name=f"s{number}",
        number=number,
        range=KeyRange(number, number + 1),
        phase=Phase.OPEN,
        durability=Durability.REPLICATED,
        replicas=replicas,
        schema_version=version,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def chosen(*segments: Segment, sealed: tuple[str, ...] = (), dead: tuple[str, ...] = ()) -> list[str]:
    layout = Layout(topic="default/t", uid="uid", partitions=len(segments), segments=segments)
    brokers = {
        replica.incarnation: BrokerView(
            replica=replica, liveness=Liveness.SUSPECT if replica.incarnation in dead else Liveness.ALIVE
        )
        for s in segments
        for replica in s.replicas
    }
    free = [s for s in segments if not s.successors]
    return [s.name for s in segments_to_seal(layout, free, 2, sealed, brokers)]


def test_a_share_of_the_segments_is_sealed_at_a_time() -> None:
    assert chosen(*(segment(n, f"i{n}") for n in range(SCHEMA_SHARE - 1))) == ["s0"]
    assert chosen(*(segment(n, f"i{n}") for n in range(3 * SCHEMA_SHARE))) == ["s0", "s1", "s2"]


def test_one_segment_of_each_primary_is_sealed_at_a_time() -> None:
    many = [segment(n, f"i{n // 10}") for n in range(4 * SCHEMA_SHARE)]
    assert chosen(*many) == ["s0", "s10", "s20", "s30"]
    many[10] = replace(many[10], **SEALING)  # type: ignore[arg-type]
    assert chosen(*many) == ["s0", "s20", "s30"]


def test_the_oldest_version_comes_first() -> None:
    assert chosen(segment(0, "a", 1), segment(1, "b", 0), segment(2, "c", 2)) == ["s1"]
    assert chosen(segment(0, "a", 2), segment(1, "b", 2)) == []


def test_a_seal_counts_until_its_seal_chunk_exists() -> None:
    segments = segment(0, "a", **SEALING), segment(1, "a")
    assert chosen(*segments) == []
    assert chosen(*segments, sealed=("s0",)) == ["s1"]


def test_only_seals_for_a_new_schema_count() -> None:
    splitting = {**SEALING, "sealed_because": Reason.SPLIT}
    assert chosen(segment(0, "a", **splitting), segment(1, "a")) == ["s1"]


def test_a_seal_that_waits_for_a_dead_primary_holds_up_no_other() -> None:
    assert chosen(segment(0, "a", **SEALING), segment(1, "b"), dead=("a",)) == ["s1"]


def test_pending_segments_wait_until_they_are_open() -> None:
    assert chosen(segment(0, "a", phase=Phase.PENDING), segment(1, "b")) == ["s1"]
