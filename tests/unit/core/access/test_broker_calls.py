"""Each call at a broker by each role: the whole table."""

from __future__ import annotations

import pytest

from smq_core.access.broker_calls import BROKER_CALLS, grant_missing, identity_denial, role_denial, rule_of
from smq_core.access.peers import EXPIRY_GRACE_SECONDS, Peer, Role
from smq_core.access.rights import Right
from smq_core.errors import Unauthenticated

CLIENT, BROKER, LEADER = Role.CLIENT, Role.BROKER, Role.LEADER
PRODUCE, CONSUME, ADMINISTER = Right.PRODUCE, Right.CONSUME, Right.ADMINISTER

TABLE = {
    "open": ({LEADER}, ()),
    "seal": ({LEADER}, ()),
    "segments": ({LEADER}, ()),
    "outcome": ({CLIENT, LEADER}, (PRODUCE,)),
    "claim": ({CLIENT, LEADER}, (PRODUCE,)),
    "locate": ({CLIENT, LEADER}, (PRODUCE, CONSUME)),
    "status": ({CLIENT, BROKER, LEADER}, (PRODUCE, CONSUME, ADMINISTER)),
    "grants": ({CLIENT, LEADER}, ()),
    "producers": ({CLIENT, LEADER}, (PRODUCE,)),
    "replica": ({BROKER}, ()),
    "tail": ({CLIENT, LEADER}, (CONSUME,)),
}


def peer(role: Role, expires_at: int = 1000) -> Peer:
    return Peer(role, "release-1", "ada", expires_at)


def test_the_table_has_each_call() -> None:
    assert set(BROKER_CALLS) == set(TABLE)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("call", [*TABLE, "unheard-of"])
def test_a_role_may_call_what_the_table_says(call: str, role: Role) -> None:
    roles, rights = TABLE.get(call, (set(), ()))
    denial = role_denial(peer(role), call)
    assert (denial is None) is (role in roles)
    assert rule_of(call).rights == rights
    if denial is not None:
        assert not denial.retry and denial.identity == "ada" and denial.access == call
        assert "ada" in denial.message and call in denial.message


def test_a_missing_grant_says_which_right_the_client_has_to_present() -> None:
    error = grant_missing(peer(CLIENT), "locate", "travel/flights")
    assert (error.topic, error.right, error.identity) == ("travel/flights", "produce", "ada")
    assert error.retry
    assert 'create topics/produce "flights" in namespace "travel" or create topics/consume "flights"' in error.access
    assert error.access in error.message


@pytest.mark.parametrize(
    ("release", "now", "denied"),
    [
        ("release-1", 0.0, ""),
        ("release-1", 1000.0 + EXPIRY_GRACE_SECONDS, ""),
        ("release-1", 1000.1 + EXPIRY_GRACE_SECONDS, "expired"),
        ("release-2", 0.0, "another release"),
    ],
)
def test_a_certificate_of_this_release_counts_until_its_end(release: str, now: float, denied: str) -> None:
    denial = identity_denial(peer(CLIENT), release, now)
    assert (denial is None) is not bool(denied)
    if denied:
        assert isinstance(denial, Unauthenticated) and denied in denial.message
