from __future__ import annotations

from smq_broker.readiness import Readiness


def test_a_new_broker_waits_for_one_that_drains_but_not_for_ever() -> None:
    readiness = Readiness(led=True, now=100.0)
    assert readiness.why_not(None, 100.1) == "waiting for a leader"
    assert readiness.why_not(True, 101.0) == "another broker drains"
    assert readiness.why_not(True, 159.0) == "another broker drains"
    assert readiness.why_not(True, 160.5) is None


def test_once_ready_it_stays_so() -> None:
    readiness = Readiness(led=True, now=0.0)
    assert readiness.why_not(False, 1.0) is None
    assert readiness.why_not(True, 2.0) is None


def test_without_a_leader_nothing_is_waited_for() -> None:
    assert Readiness(led=False, now=0.0).why_not(None, 0.0) is None
    away = Readiness(led=True, now=0.0)
    assert away.why_not(None, 4.9) is not None
    assert away.why_not(None, 5.1) is None
