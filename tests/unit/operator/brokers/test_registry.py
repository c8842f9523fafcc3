"""The registry of brokers: liveness, and the proofs that an incarnation is gone."""

from __future__ import annotations

import pytest

from smq_core.errors import InvalidRequest, WrongIncarnation
from smq_core.model.entities import Durability, Layout, Liveness, Replica
from smq_core.model.keyspace import KeyRange
from smq_core.model.layout_transitions import Successor, create
from smq_operator.brokers.registry import (
    MAX_REPORT_TIMEOUT_US,
    REPORT_IN_FLIGHT_US,
    SUSPECT_AFTER_US,
    BrokerRegistry,
    assigned_work,
)
from smq_proto.v1 import brokers_pb2
from smq_proto.v1 import data_pb2 as pb
from support.in_memory.broker_registry import AnsweringRegistry
from support.in_memory.leader import FakePlatform


class OwnershipPlatform(FakePlatform):
    """``owner``: which incarnation it says runs under a name."""

    def __init__(self) -> None:
        super().__init__()
        self.owner: dict[str, str] = {}

    def is_current_incarnation(self, broker: str, incarnation: str) -> bool | None:
        return None if broker not in self.owner else self.owner[broker] == incarnation


def report(name: str, incarnation: str, **more: object) -> brokers_pb2.BrokerReport:
    return brokers_pb2.BrokerReport(broker=name, incarnation=incarnation, address=f"{incarnation}:1", **more)  # type: ignore[arg-type]


def layout_on(*incarnations: str) -> Layout:
    replicas = tuple(Replica(i.split("-")[0], i, f"{i}:1") for i in incarnations)
    return create("default/t", "u", 8, [Successor(KeyRange(0, 8), replicas, Durability.REPLICATED)], now=0, writer="w")


@pytest.fixture
def platform() -> OwnershipPlatform:
    return OwnershipPlatform()


@pytest.fixture
def registry(platform: OwnershipPlatform) -> BrokerRegistry:
    return AnsweringRegistry(platform)


def liveness(registry: BrokerRegistry, incarnation: str, now: int) -> Liveness:
    return registry.views({}, {}, now)[incarnation].liveness


def test_a_broker_is_alive_while_it_reports(registry: BrokerRegistry):
    registry.report(report("b", "b-1"), 0)
    assert liveness(registry, "b-1", SUSPECT_AFTER_US) is Liveness.ALIVE
    assert liveness(registry, "b-1", SUSPECT_AFTER_US + 1) is Liveness.SUSPECT
    registry.report(report("b", "b-1"), SUSPECT_AFTER_US + 2)
    assert liveness(registry, "b-1", SUSPECT_AFTER_US + 3) is Liveness.ALIVE


def test_a_wrongly_suspected_broker_gets_a_longer_timeout_until_it_is_stable(registry: BrokerRegistry):
    now = 0
    registry.report(report("b", "b-1"), now)
    for wait in (
        SUSPECT_AFTER_US,
        2 * SUSPECT_AFTER_US,
        4 * SUSPECT_AFTER_US,
        MAX_REPORT_TIMEOUT_US,
        MAX_REPORT_TIMEOUT_US,
    ):
        assert liveness(registry, "b-1", now + wait) is Liveness.ALIVE
        now += wait + 1
        assert liveness(registry, "b-1", now) is Liveness.SUSPECT
        registry.report(report("b", "b-1"), now)
    for wait in (MAX_REPORT_TIMEOUT_US // 2, MAX_REPORT_TIMEOUT_US // 4, MAX_REPORT_TIMEOUT_US // 8, SUSPECT_AFTER_US):
        for _ in range(60):
            now += 1_000_000
            registry.report(report("b", "b-1"), now)
        assert liveness(registry, "b-1", now + wait) is Liveness.ALIVE
        assert liveness(registry, "b-1", now + wait + 1) is Liveness.SUSPECT


def test_a_pending_liveness_probe_is_not_cleared_by_reports(registry: BrokerRegistry):
    broker = registry.report(report("b", "b-1"), 0)
    broker.suspected = True
    registry.report(report("b", "b-1"), 1)
    assert liveness(registry, "b-1", 1) is Liveness.SUSPECT


def test_a_newer_incarnation_makes_the_older_one_gone_for_ever(registry: BrokerRegistry):
    registry.report(report("b", "b-1"), 0)
    registry.report(report("b", "b-2"), 1)
    assert liveness(registry, "b-1", 1) is Liveness.GONE
    with pytest.raises(WrongIncarnation, match="Stop this process"):
        registry.report(report("b", "b-1"), 2)
    assert liveness(registry, "b-2", 2) is Liveness.ALIVE, "a late report of the old one changes nothing"


def test_a_late_report_that_the_platform_contradicts_marks_nobody_gone(
    registry: BrokerRegistry, platform: OwnershipPlatform
):
    platform.owner["b"] = "b-2"
    registry.report(report("b", "b-2"), 0)
    with pytest.raises(WrongIncarnation):
        registry.report(report("b", "b-1"), 1)
    assert liveness(registry, "b-2", 1) is Liveness.ALIVE
    assert liveness(registry, "b-1", 1) is Liveness.GONE


def test_unreachable_is_not_gone_but_a_proof_is(registry: BrokerRegistry, platform: OwnershipPlatform):
    registry.report(report("b", "b-1"), 0)
    assert registry.apply_termination_proofs([], 0) == []
    platform.terminated["b-1"] = "its process ended"
    (gone,) = registry.apply_termination_proofs([], 0)
    assert gone.gone == "its process ended"
    assert registry.apply_termination_proofs([], 0) == [], "reported once"


def test_incarnations_that_only_a_layout_names_are_checked_too(registry: BrokerRegistry, platform: OwnershipPlatform):
    platform.terminated["a-1"] = "gone before this leader came"
    registry.apply_termination_proofs([layout_on("a-1", "c-1")], 0)
    assert liveness(registry, "a-1", 0) is Liveness.GONE
    assert registry.get("c-1") is None, "nothing is known of it: suspect, not gone"


def test_a_name_that_another_took_proves_its_earlier_holder_gone_when_it_goes_on_reporting(registry: BrokerRegistry):
    registry.report(report("a", "a-2"), 0)
    registry.apply_termination_proofs([layout_on("a-1")], 100)
    registry.report(report("a", "a-2"), 100 + REPORT_IN_FLIGHT_US - 1)
    registry.apply_termination_proofs([layout_on("a-1")], 100 + REPORT_IN_FLIGHT_US)
    assert registry.get("a-1") is None
    registry.report(report("a", "a-2"), 100 + REPORT_IN_FLIGHT_US)
    registry.apply_termination_proofs([layout_on("a-1")], 100 + REPORT_IN_FLIGHT_US)
    assert liveness(registry, "a-1", 0) is Liveness.GONE


def test_an_incarnation_known_to_another_leader_is_not_gone_because_its_predecessor_reported(registry: BrokerRegistry):
    later = 60_000_000
    registry.report(report("a", "a-1"), later - 1)
    registry.apply_termination_proofs([layout_on("a-2")], later)
    registry.compensate_pause(20_000_000)  # nobody was heard meanwhile
    registry.apply_termination_proofs([layout_on("a-2")], later + 20_000_000)
    assert registry.get("a-2") is None, "it may be the newer one"
    registry.report(report("a", "a-2"), later + 21_000_000)
    assert liveness(registry, "a-2", later + 21_000_000) is Liveness.ALIVE
    assert liveness(registry, "a-1", later + 21_000_000) is Liveness.GONE


def test_who_is_gone_is_known_as_long_as_a_layout_names_it(registry: BrokerRegistry, platform: OwnershipPlatform):
    registry.report(report("b", "b-1"), 0)
    platform.terminated["b-1"] = "dead"
    registry.apply_termination_proofs([], 0)
    late = 3_600_000_000
    assert registry.forget({"b-1"}, late) == []
    assert registry.forget(set(), 1_000_000) == [], "not at once, so that lists still have it"
    assert registry.forget(set(), late) == ["b-1"]


@pytest.mark.parametrize("how", [{"leaving": True}, {"status": pb.BrokerStatus(draining=True)}])
def test_draining_stays(registry: BrokerRegistry, how):
    registry.report(report("b", "b-1", **how), 0)
    registry.report(report("b", "b-1"), 1)
    assert registry.views({}, {}, 1)["b-1"].draining


def test_a_pause_of_the_leader_is_no_evidence_against_brokers(registry: BrokerRegistry):
    registry.report(report("b", "b-1"), 0)
    registry.compensate_pause(60_000_000)
    assert liveness(registry, "b-1", 60_000_000) is Liveness.ALIVE


@pytest.mark.parametrize("missing", ["broker", "incarnation", "address"])
def test_a_report_names_itself(registry: BrokerRegistry, missing):
    wrong = report("b", "b-1")
    wrong.ClearField(missing)
    with pytest.raises(InvalidRequest):
        registry.report(wrong, 0)


def test_a_primary_counts_twice():
    assert assigned_work([layout_on("a-1", "b-1"), layout_on("b-1", "c-1")]) == {"a-1": 2, "b-1": 3, "c-1": 1}


def test_a_late_report_of_a_process_that_ended_does_not_end_the_newer_one(platform: OwnershipPlatform):
    registry = BrokerRegistry(platform)
    registry.report(report("b", "b-2"), 0)
    answer = registry.next_answer()

    registry.report(report("b", "b-1"), 1)  # sent before b-2 began, while this leader was paused

    assert liveness(registry, "b-2", 2) is Liveness.ALIVE
    registry.report(report("b", "b-2", last_leader=registry.leader, last_answer=answer), 3)
    assert liveness(registry, "b-1", 4) is Liveness.ALIVE, "it may be the newer one, by what b-2 has shown"
    registry.report(report("b", "b-2", last_leader="another", last_answer=registry.next_answer()), 4)
    assert liveness(registry, "b-1", 5) is Liveness.ALIVE, "another leader gave that answer"
    registry.report(report("b", "b-2", last_leader=registry.leader, last_answer=registry.next_answer()), 5)
    assert (liveness(registry, "b-1", 6), liveness(registry, "b-2", 6)) == (Liveness.GONE, Liveness.ALIVE)


def test_each_answer_has_a_higher_number_and_another_leader_another_name(platform: OwnershipPlatform):
    registry = BrokerRegistry(platform)
    assert registry.next_answer() < registry.next_answer()
    assert registry.leader != BrokerRegistry(platform).leader


def test_brokers_with_other_authorities_are_those_that_may_run(registry: BrokerRegistry):
    status = pb.BrokerStatus(memory_limit=1)
    for name, authorities in (("a", "new"), ("b", "old"), ("c", "old"), ("d", "old")):
        registry.report(report(name, f"{name}-1", status=status, authorities=authorities), 0)
    suspect, ended = registry.get("c-1"), registry.get("d-1")
    assert suspect is not None and ended is not None
    suspect.suspected = True
    ended.end("killed", 1, journal_gone=False)
    assert registry.with_other_authorities("new") == ["b", "c"]
    assert registry.with_other_authorities("old") == ["a"]
