"""Histories of the Lease, with candidates that stop and an unavailable API server. See ``histories/lease.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from smq_core.leader_election import LeaseCandidate
from support.sim.histories import lease as lease_history
from support.sim.histories.lease import LeaseHistory

pytestmark = pytest.mark.simulation

HISTORIES = 600


@pytest.mark.slow
def test_the_promises_are_kept() -> None:
    found = [failure for seed in range(HISTORIES) if (failure := lease_history.run(seed))]
    assert not found, f"{len(found)} of {HISTORIES} histories failed; the first:\n{found[0]}"


def test_there_is_something_to_promise() -> None:
    """In most histories the API server is unavailable for longer than the Lease's duration, or the leader stops."""
    stops, leaders = 0, 0
    for seed in range(40):
        history = LeaseHistory(seed)
        history.run()
        stops += history.stops
        leaders += len({runner.candidate.identity for runner in history.runners if runner.leads})
    assert 10 < stops < 30
    assert leaders == 40


Patch = pytest.MonkeyPatch


def counts_outages_as_silence(patch: Patch) -> None:
    patch.setattr(LeaseCandidate, "_has_observation_gap", lambda self, now: False)


def takes_it_without_waiting(patch: Patch) -> None:
    patch.setattr(LeaseCandidate, "_is_available", lambda self: True)


def never_takes_what_has_a_holder(patch: Patch) -> None:
    patch.setattr(LeaseCandidate, "_is_available", lambda self: self.lease is None)


def does_not_see_that_it_was_displaced(patch: Patch) -> None:
    original = LeaseCandidate.observed

    def observed(self: LeaseCandidate, lease: Any, now: int) -> None:
        led = self.leads
        original(self, lease, now)
        self.leads, self.lost = led, False

    patch.setattr(LeaseCandidate, "observed", observed)


def forgets_that_a_write_was_refused(patch: Patch) -> None:
    patch.setattr(LeaseCandidate, "refused", lambda self: None)


@pytest.mark.parametrize(
    "break_it",
    [
        counts_outages_as_silence,
        takes_it_without_waiting,
        never_takes_what_has_a_holder,
        does_not_see_that_it_was_displaced,
        forgets_that_a_write_was_refused,
    ],
)
def test_a_broken_rule_is_noticed(break_it: Callable[[Patch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        caught = next((seed for seed in range(100) if lease_history.run(seed)), None)
    assert caught is not None
    assert lease_history.run(caught) is None
