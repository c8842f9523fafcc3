"""The registry of brokers when processes have journals: what ended is not gone before its journal is."""

from __future__ import annotations

import pytest

from smq_core.errors import WrongIncarnation
from smq_core.model.entities import Durability, Layout, Liveness, Replica
from smq_core.model.keyspace import KeyRange
from smq_core.model.layout_transitions import Successor, create
from smq_operator.brokers.registry import GONE_RETENTION_US, REPORT_IN_FLIGHT_US, SUSPECT_AFTER_US
from smq_proto.v1 import brokers_pb2
from support.in_memory.broker_registry import AnsweringRegistry
from support.in_memory.leader import FakePlatform

ALIVE, SUSPECT, ENDED, RECOVERED, GONE = Liveness


class Leader:
    """A registry with a platform. Brokers report as ``name-number``."""

    def __init__(self) -> None:
        self.platform = FakePlatform()
        self.registry = AnsweringRegistry(self.platform)

    def report(self, incarnation: str, now: int, *recovered: str) -> None:
        name = incarnation.split("-")[0]
        self.registry.report(
            brokers_pb2.BrokerReport(
                broker=name, incarnation=incarnation, address=f"{incarnation}:1", recovered=recovered
            ),
            now,
        )

    def ends(self, incarnation: str, now: int) -> list[str]:
        """The process is proved to have ended. Returns the incarnations whose state changed."""
        self.platform.ended[incarnation] = "its process ended"
        return self.check(now)

    def check(self, now: int, *layouts: Layout) -> list[str]:
        return [b.replica.incarnation for b in self.registry.apply_termination_proofs(layouts, now)]

    def liveness(self, incarnation: str, now: int) -> Liveness | None:
        view = self.registry.views({}, {}, now).get(incarnation)
        return view.liveness if view is not None else None

    def receiver(self, incarnation: str) -> str:
        replica = Replica(incarnation.split("-")[0], incarnation, f"{incarnation}:1")
        return self.registry.receiver(replica).address


@pytest.fixture
def leader() -> Leader:
    return Leader()


def layout_on(*incarnations: str) -> Layout:
    replicas = tuple(Replica(i.split("-")[0], i, f"{i}:1") for i in incarnations)
    return create("default/t", "u", 8, [Successor(KeyRange(0, 8), replicas, Durability.REPLICATED)], now=0, writer="w")


def test_a_process_that_ended_is_not_gone(leader: Leader):
    leader.report("a-1", 0)
    assert leader.ends("a-1", 1) == ["a-1"]
    assert leader.liveness("a-1", 1) is ENDED
    assert leader.check(2) == [], "it is told once"
    with pytest.raises(WrongIncarnation, match="Stop this process"):
        leader.report("a-1", 3)


def test_the_next_process_seals_for_the_one_whose_journal_it_has(leader: Leader):
    leader.report("a-1", 0)
    leader.ends("a-1", 1)
    leader.report("a-2", 2, "a-1")
    assert (leader.liveness("a-1", 2), leader.liveness("a-2", 2)) == (RECOVERED, ALIVE)
    assert leader.receiver("a-1") == "a-2:1"
    assert leader.receiver("a-2") == "a-2:1"


def test_a_process_that_comes_back_without_the_journal_proves_that_it_is_gone(leader: Leader):
    leader.report("a-1", 0)
    leader.ends("a-1", 1)
    leader.report("a-2", 2)
    assert leader.liveness("a-1", 2) is GONE


def test_a_recovered_journal_that_is_sealed_is_gone(leader: Leader):
    leader.report("a-1", 0)
    leader.report("a-2", 1, "a-1")
    leader.report("a-2", 2, "a-1")
    assert leader.liveness("a-1", 2) is RECOVERED
    leader.report("a-2", 3)
    assert leader.liveness("a-1", 3) is GONE


def test_a_proof_that_the_journal_is_gone_counts_at_any_time(leader: Leader):
    leader.report("a-1", 0)
    leader.ends("a-1", 1)
    leader.platform.terminated["a-1"] = "its Pod was deleted"
    assert leader.check(2) == ["a-1"]
    assert leader.liveness("a-1", 2) is GONE
    leader.report("a-2", 3, "a-1")
    assert leader.liveness("a-1", 3) is GONE, "for ever"


def test_two_restarts_in_a_row_hand_the_journals_on(leader: Leader):
    leader.report("a-1", 0)
    leader.report("a-2", 1, "a-1")
    leader.ends("a-2", 2)
    assert (leader.liveness("a-1", 2), leader.liveness("a-2", 2)) == (ENDED, ENDED), "nobody could seal"
    leader.report("a-3", 3, "a-1", "a-2")
    assert (leader.liveness("a-1", 3), leader.liveness("a-2", 3)) == (RECOVERED, RECOVERED)
    assert leader.receiver("a-1") == leader.receiver("a-2") == "a-3:1"


def test_a_second_restart_without_the_journals_proves_both_gone(leader: Leader):
    leader.report("a-1", 0)
    leader.report("a-2", 1, "a-1")
    leader.report("a-3", 2)
    assert (leader.liveness("a-1", 2), leader.liveness("a-2", 2)) == (GONE, GONE)


def test_a_process_with_a_journal_that_does_not_report_cannot_seal(leader: Leader):
    leader.report("a-1", 0)
    leader.report("a-2", 1, "a-1")
    late = 2 + SUSPECT_AFTER_US
    assert leader.liveness("a-1", late) is SUSPECT
    leader.report("a-2", late, "a-1")
    assert leader.liveness("a-1", late) is RECOVERED


def test_a_new_leader_learns_of_a_journal_by_the_report(leader: Leader):
    leader.report("a-2", 0, "a-1")
    assert leader.check(1, layout_on("a-1")) == []
    assert leader.liveness("a-1", 1) is RECOVERED
    assert leader.receiver("a-1") == "a-2:1"


def test_a_new_leader_that_knows_only_the_layout_waits_for_the_journal(leader: Leader):
    leader.platform.ended["a-1"] = "its process ended"
    leader.check(0, layout_on("a-1"))
    assert leader.liveness("a-1", 0) is ENDED
    leader.report("a-2", 1, "a-1")
    assert leader.liveness("a-1", 1) is RECOVERED


def test_a_process_that_reported_before_the_layout_was_read_proves_the_journal_gone_later(leader: Leader):
    leader.report("a-2", 0)
    leader.platform.ended["a-1"] = "its process ended"
    leader.check(100, layout_on("a-1"))
    assert leader.liveness("a-1", 100) is ENDED
    leader.report("a-2", 100 + REPORT_IN_FLIGHT_US)
    assert leader.check(100 + REPORT_IN_FLIGHT_US, layout_on("a-1")) == ["a-1"]
    assert leader.liveness("a-1", 100 + REPORT_IN_FLIGHT_US) is GONE


def test_a_pause_of_the_leader_proves_no_journal_gone(leader: Leader):
    leader.report("a-2", 0)
    leader.platform.ended["a-1"] = "its process ended"
    leader.check(100, layout_on("a-1"))
    leader.registry.compensate_pause(60_000_000)
    assert leader.check(60_000_100, layout_on("a-1")) == []


def test_a_late_report_of_a_process_that_ended_does_not_hide_its_journal(leader: Leader):
    class Owner(FakePlatform):
        def is_current_incarnation(self, broker: str, incarnation: str) -> bool | None:
            return incarnation == "a-2"

    leader.registry = AnsweringRegistry(Owner())
    with pytest.raises(WrongIncarnation):
        leader.report("a-1", 0)
    assert leader.liveness("a-1", 0) is ENDED
    leader.report("a-2", 1, "a-1")
    assert leader.liveness("a-1", 1) is RECOVERED


def test_a_journal_is_remembered_as_long_as_a_process_has_it_or_a_layout_names_it(leader: Leader):
    leader.report("a-1", 0)
    leader.ends("a-1", 0)
    late = 2 * GONE_RETENTION_US
    assert leader.registry.forget({"a-1"}, late) == []
    leader.report("a-2", late, "a-1")
    assert leader.registry.forget(set(), late) == []
    leader.report("a-2", late + 1)
    assert leader.registry.forget(set(), late + 1) == ["a-1"]


def test_brokers_without_journals_are_gone_as_before(leader: Leader):
    leader.report("a-1", 0)
    leader.report("a-2", 1)
    assert leader.liveness("a-1", 1) is GONE


def test_what_has_ended_needs_a_new_decision(leader: Leader):
    leader.report("a-1", 0)
    before = leader.registry.states(1)
    leader.ends("a-1", 1)
    assert leader.registry.states(1) != before
    assert leader.registry.healthy_incarnations(1) == set()
    assert leader.registry.alive(1) == []
