from __future__ import annotations

from smq_broker.runtime.health import Readiness


def test_a_new_broker_waits_for_one_that_drains_but_not_for_ever() -> None:
    readiness = Readiness(has_leader=True, now=100.0)
    assert readiness.not_ready_reason(None, 100.1) == "waiting for a leader"
    assert readiness.not_ready_reason(True, 101.0) == "another broker drains"
    assert readiness.not_ready_reason(True, 159.0) == "another broker drains"
    assert readiness.not_ready_reason(True, 160.5) is None


def test_once_ready_it_stays_so() -> None:
    readiness = Readiness(has_leader=True, now=0.0)
    assert readiness.not_ready_reason(False, 1.0) is None
    assert readiness.not_ready_reason(True, 2.0) is None


def test_without_the_address_of_a_leader_nothing_is_waited_for() -> None:
    assert Readiness(has_leader=False, now=0.0).not_ready_reason(None, 0.0) is None


def test_a_rolling_update_waits_until_a_leader_can_move_segments() -> None:
    readiness = Readiness(has_leader=True, now=0.0)
    assert readiness.not_ready_reason(None, 3600.0) == "waiting for a leader"
    assert readiness.not_ready_reason(False, 3601.0) is None
    assert readiness.not_ready_reason(None, 3602.0) is None
