"""Candidates for the Lease, on a Lease of the test's own that refuses writes that come too late."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from smq_core.leader_election import LeaseAction, LeaseCandidate, LeaseRecord
from smq_core.model.entities import SECOND


@dataclass
class FakeLeaseServer:
    lease: LeaseRecord | None = None
    versions: int = 0

    def write(self, holder: str, before: LeaseRecord | None, duration: int = 10 * SECOND) -> LeaseRecord | None:
        if self.lease != before:
            return None
        self.versions += 1
        self.lease = LeaseRecord(str(self.versions), holder, duration, f"{holder}:1")
        return self.lease


@dataclass
class CandidateRunner:
    """Does what a candidate wants. ``ahead`` is how far its clock is from the others'."""

    server: FakeLeaseServer
    candidate: LeaseCandidate
    ahead: int = 0
    connected: bool = True
    took_at: list[int] = field(default_factory=list)

    def tick(self, now: int) -> None:
        mine = now + self.ahead
        for _ in range(3):
            next_action = self.candidate.next_action(mine)
            if next_action is LeaseAction.NOTHING or not self.connected:
                return
            if next_action is LeaseAction.READ:
                self.candidate.observed(self.server.lease, mine)
                continue
            done = self.server.write(self.candidate.identity, self.candidate.lease)
            if done is None:
                self.candidate.refused()
            else:
                if next_action is LeaseAction.TAKE:
                    self.took_at.append(now)
                self.candidate.written(done, mine)


def run(runners: list[CandidateRunner], start: int, seconds: float) -> int:
    now = start
    while now < start + seconds * SECOND:
        for runner in runners:
            runner.tick(now)
        assert sum(r.candidate.leads for r in runners if r.connected) <= 1
        now += SECOND // 10
    return now


def pair() -> tuple[FakeLeaseServer, CandidateRunner, CandidateRunner]:
    server = FakeLeaseServer()
    return (
        server,
        CandidateRunner(server, LeaseCandidate("a")),
        CandidateRunner(server, LeaseCandidate("b"), ahead=10**15),
    )


def test_the_first_takes_a_lease_that_is_not_there_and_keeps_it() -> None:
    _, a, b = pair()
    run([a, b], 0, 60)
    assert a.candidate.leads and not b.candidate.leads
    assert b.candidate.lease is not None and b.candidate.lease.address == "a:1"


def test_it_renews_no_more_often_than_it_should() -> None:
    server, a, b = pair()
    run([a, b], 0, 60)
    assert 28 <= server.versions <= 31


def test_a_dead_one_is_followed_within_its_duration() -> None:
    _, a, b = pair()
    died = run([a, b], 0, 30)
    run([b], died, 20)
    assert b.candidate.leads
    assert 8 * SECOND < b.took_at[0] - died < 12 * SECOND


def test_a_lease_that_was_given_back_is_taken_at_once() -> None:
    server, a, b = pair()
    now = run([a, b], 0, 30)
    assert server.write("", server.lease) is not None
    run([b], now, 2)
    assert b.candidate.leads and b.took_at[0] - now <= 1.1 * SECOND


def test_a_deleted_lease_is_recreated_by_its_holder() -> None:
    server, a, b = pair()
    now = run([a], 0, 5)
    server.lease = None
    a.candidate.refused()  # its renewal is refused: there is nothing to change
    run([a, b], now, 1)
    assert a.candidate.leads and server.lease is not None


def test_a_holder_without_the_api_server_leads_on_until_it_sees_another() -> None:
    _, a, b = pair()
    now = run([a, b], 0, 10)
    a.connected = False
    now = run([a, b], now, 30)
    assert a.candidate.leads and a.candidate.lease_expired(now) and b.candidate.leads
    a.connected = True
    a.tick(now)
    assert not a.candidate.leads and a.candidate.lost
    assert a.candidate.next_action(now + 100 * SECOND) is LeaseAction.NOTHING


def test_a_holder_that_may_not_renew_any_more_ends_when_its_time_is_over() -> None:
    _, a, b = pair()
    now = run([a, b], 0, 10)
    a.candidate.renewal_rejected(now)
    assert a.candidate.leads, "it is the holder still"
    a.candidate.renewal_rejected(now + 13 * SECOND)
    assert a.candidate.lost and not a.candidate.leads


@pytest.mark.parametrize("away", [4, 8, 12, 40, 4000])
def test_when_nobody_reaches_the_api_server_the_holder_stays_though_another_is_back_first(away: int) -> None:
    _, a, b = pair()
    now = run([a, b], 0, 10)
    a.connected = b.connected = False
    now = run([a, b], now, away)
    b.connected = True
    now = run([a, b], now, 4)
    a.connected = True
    run([a, b], now, 20)
    assert a.candidate.leads and not b.candidate.leads


@pytest.mark.parametrize("seed", range(50))
def test_two_of_those_connected_never_lead_and_one_does_when_all_is_quiet(seed: int) -> None:
    chance = random.Random(seed)
    server = FakeLeaseServer()
    runners = [CandidateRunner(server, LeaseCandidate(name), ahead=chance.randrange(10**12)) for name in "abc"]
    now = 0
    for _ in range(20):
        for runner in runners:
            runner.connected = chance.random() < 0.7
        # one that comes back reads before it is counted: until then it may believe what it wants
        for runner in runners:
            if runner.connected:
                runner.candidate.refused()
                runner.tick(now)
        now = run(runners, now, chance.choice([1, 5, 15]))
        for position, runner in enumerate(runners):
            if runner.candidate.lost or chance.random() < 0.1:  # its process is started anew
                name = f"{runner.candidate.identity[0]}{now}"
                runners[position] = CandidateRunner(server, LeaseCandidate(name), ahead=runner.ahead)
    for runner in runners:
        runner.connected = True
        runner.candidate.refused()
        runner.tick(now)
    for position, runner in enumerate(runners):
        if runner.candidate.lost:
            runners[position] = CandidateRunner(server, LeaseCandidate(f"n{position}"))
    run(runners, now, 15)
    assert sum(r.candidate.leads for r in runners) == 1
