"""What the leader knows of brokers, and on whose word."""

from __future__ import annotations

import pytest

from smq_core.errors import InvalidRequest, WrongIncarnation
from smq_core.keyspace import KeyRange
from smq_core.layout import Successor, create
from smq_core.model import Durability, Layout, Replica
from smq_core.sealing import Liveness
from smq_operator.registry import LONGEST_PATIENCE, REPORTS_UNDER_WAY, SILENT_AFTER, Registry, work_of
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from support.leader_in_memory import FakeWorld


class World(FakeWorld):
    """``owner``: which incarnation it says runs under a name."""

    def __init__(self) -> None:
        super().__init__()
        self.owner: dict[str, str] = {}

    def claims(self, broker: str, incarnation: str) -> bool | None:
        return None if broker not in self.owner else self.owner[broker] == incarnation


def report(name: str, incarnation: str, **more: object) -> lpb.BrokerReport:
    return lpb.BrokerReport(broker=name, incarnation=incarnation, address=f"{incarnation}:1", **more)  # type: ignore[arg-type]


def layout_on(*incarnations: str) -> Layout:
    replicas = tuple(Replica(i.split("-")[0], i, f"{i}:1") for i in incarnations)
    return create("default/t", "u", 8, [Successor(KeyRange(0, 8), replicas, Durability.REPLICATED)], now=0, writer="w")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def registry(world: World) -> Registry:
    return Registry(world)


def liveness(registry: Registry, incarnation: str, now: int) -> Liveness:
    return registry.views({}, {}, now)[incarnation].liveness


def test_a_broker_is_alive_while_it_reports(registry: Registry):
    registry.report(report("b", "b-1"), 0)
    assert liveness(registry, "b-1", SILENT_AFTER) is Liveness.ALIVE
    assert liveness(registry, "b-1", SILENT_AFTER + 1) is Liveness.SUSPECT
    registry.report(report("b", "b-1"), SILENT_AFTER + 2)
    assert liveness(registry, "b-1", SILENT_AFTER + 3) is Liveness.ALIVE


def test_who_was_suspected_in_vain_is_waited_for_longer_until_things_are_calm(registry: Registry):
    now = 0
    registry.report(report("b", "b-1"), now)
    for wait in (SILENT_AFTER, 2 * SILENT_AFTER, 4 * SILENT_AFTER, LONGEST_PATIENCE, LONGEST_PATIENCE):
        assert liveness(registry, "b-1", now + wait) is Liveness.ALIVE
        now += wait + 1
        assert liveness(registry, "b-1", now) is Liveness.SUSPECT
        registry.report(report("b", "b-1"), now)
    for wait in (LONGEST_PATIENCE // 2, LONGEST_PATIENCE // 4, LONGEST_PATIENCE // 8, SILENT_AFTER):
        for _ in range(60):
            now += 1_000_000
            registry.report(report("b", "b-1"), now)
        assert liveness(registry, "b-1", now + wait) is Liveness.ALIVE
        assert liveness(registry, "b-1", now + wait + 1) is Liveness.SUSPECT


def test_a_doubt_is_not_cleared_by_reports(registry: Registry):
    broker = registry.report(report("b", "b-1"), 0)
    broker.doubted = True
    registry.report(report("b", "b-1"), 1)
    assert liveness(registry, "b-1", 1) is Liveness.SUSPECT


def test_a_newer_incarnation_makes_the_older_one_gone_for_ever(registry: Registry):
    registry.report(report("b", "b-1"), 0)
    registry.report(report("b", "b-2"), 1)
    assert liveness(registry, "b-1", 1) is Liveness.GONE
    with pytest.raises(WrongIncarnation, match="stop this process"):
        registry.report(report("b", "b-1"), 2)
    assert liveness(registry, "b-2", 2) is Liveness.ALIVE, "a late report of the old one changes nothing"


def test_a_late_report_of_a_process_that_the_world_knows_better_makes_nobody_gone(registry: Registry, world: World):
    world.owner["b"] = "b-2"
    registry.report(report("b", "b-2"), 0)
    with pytest.raises(WrongIncarnation):
        registry.report(report("b", "b-1"), 1)
    assert liveness(registry, "b-2", 1) is Liveness.ALIVE
    assert liveness(registry, "b-1", 1) is Liveness.GONE


def test_unreachable_is_not_gone_but_a_proof_is(registry: Registry, world: World):
    registry.report(report("b", "b-1"), 0)
    assert registry.check_proofs([], 0) == []
    world.dead["b-1"] = "its process ended"
    (gone,) = registry.check_proofs([], 0)
    assert gone.gone == "its process ended"
    assert registry.check_proofs([], 0) == [], "told once"


def test_incarnations_that_only_a_layout_names_are_asked_about_too(registry: Registry, world: World):
    world.dead["a-1"] = "gone before this leader came"
    registry.check_proofs([layout_on("a-1", "c-1")], 0)
    assert liveness(registry, "a-1", 0) is Liveness.GONE
    assert registry.get("c-1") is None, "nothing is known of it: suspect, not gone"


def test_a_name_that_another_took_proves_its_earlier_holder_gone_when_it_goes_on_reporting(registry: Registry):
    registry.report(report("a", "a-2"), 0)
    registry.check_proofs([layout_on("a-1")], 100)
    registry.report(report("a", "a-2"), 100 + REPORTS_UNDER_WAY - 1)
    registry.check_proofs([layout_on("a-1")], 100 + REPORTS_UNDER_WAY)
    assert registry.get("a-1") is None
    registry.report(report("a", "a-2"), 100 + REPORTS_UNDER_WAY)
    registry.check_proofs([layout_on("a-1")], 100 + REPORTS_UNDER_WAY)
    assert liveness(registry, "a-1", 0) is Liveness.GONE


def test_one_that_only_another_leader_knows_is_not_gone_because_its_forerunner_was_heard(registry: Registry):
    later = 60_000_000
    registry.report(report("a", "a-1"), later - 1)
    registry.check_proofs([layout_on("a-2")], later)
    registry.slept(20_000_000)  # nobody was heard meanwhile
    registry.check_proofs([layout_on("a-2")], later + 20_000_000)
    assert registry.get("a-2") is None, "it may be the newer one"
    registry.report(report("a", "a-2"), later + 21_000_000)
    assert liveness(registry, "a-2", later + 21_000_000) is Liveness.ALIVE
    assert liveness(registry, "a-1", later + 21_000_000) is Liveness.GONE


def test_who_is_gone_is_known_as_long_as_a_layout_names_it(registry: Registry, world: World):
    registry.report(report("b", "b-1"), 0)
    world.dead["b-1"] = "dead"
    registry.check_proofs([], 0)
    late = 3_600_000_000
    assert registry.forget({"b-1"}, late) == []
    assert registry.forget(set(), 1_000_000) == [], "not at once: somebody may look at the list"
    assert registry.forget(set(), late) == ["b-1"]


@pytest.mark.parametrize("how", [{"leaving": True}, {"status": pb.BrokerStatus(draining=True)}])
def test_draining_stays(registry: Registry, how):
    registry.report(report("b", "b-1", **how), 0)
    registry.report(report("b", "b-1"), 1)
    assert registry.views({}, {}, 1)["b-1"].draining


def test_standing_still_says_nothing_about_brokers(registry: Registry):
    registry.report(report("b", "b-1"), 0)
    registry.slept(60_000_000)
    assert liveness(registry, "b-1", 60_000_000) is Liveness.ALIVE


@pytest.mark.parametrize("missing", ["broker", "incarnation", "address"])
def test_a_report_names_itself(registry: Registry, missing):
    wrong = report("b", "b-1")
    wrong.ClearField(missing)
    with pytest.raises(InvalidRequest):
        registry.report(wrong, 0)


def test_a_primary_counts_twice():
    assert work_of([layout_on("a-1", "b-1"), layout_on("b-1", "c-1")]) == {"a-1": 2, "b-1": 3, "c-1": 1}
