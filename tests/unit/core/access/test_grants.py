from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.access import grants
from smq_core.access.grants import LEADERLESS_GRACE_SECONDS, Grant, GrantBook
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied

GRANT = Grant(release="r", identity="alice", topic="travel/flights", uid="u1", right=Right.PRODUCE, expires_at=100.0)


def book() -> GrantBook:
    held = GrantBook("r")
    held.add("alice", GRANT, now=0.0)
    return held


def test_a_grant_allows_one_identity_one_right_to_one_topic() -> None:
    held = book()
    assert held.allows("alice", "u1", Right.PRODUCE, now=99.0, leader_seen_at=99.0)
    assert not held.allows("bob", "u1", Right.PRODUCE, now=99.0, leader_seen_at=99.0)
    assert not held.allows("alice", "u2", Right.PRODUCE, now=99.0, leader_seen_at=99.0)
    assert not held.allows("alice", "u1", Right.CONSUME, now=99.0, leader_seen_at=99.0)


def test_it_ends_when_a_leader_could_have_renewed_it() -> None:
    assert not book().allows("alice", "u1", Right.PRODUCE, now=101.0, leader_seen_at=100.5)


def test_it_counts_longer_without_a_leader_but_not_for_ever() -> None:
    held = book()
    assert held.allows("alice", "u1", Right.PRODUCE, now=100.0 + LEADERLESS_GRACE_SECONDS, leader_seen_at=99.0)
    assert not held.allows("alice", "u1", Right.PRODUCE, now=101.0 + LEADERLESS_GRACE_SECONDS, leader_seen_at=99.0)


@pytest.mark.parametrize(
    "identity, grant, says",
    [
        ("bob", GRANT, "another identity"),
        ("alice", replace(GRANT, release="other"), "another release"),
        ("alice", replace(GRANT, expires_at=0.0), "expired"),
    ],
)
def test_a_grant_of_somebody_else_or_of_before_is_refused(identity: str, grant: Grant, says: str) -> None:
    held = GrantBook("r")
    with pytest.raises(PermissionDenied, match=says):
        held.add(identity, grant, now=0.0)
    assert not held.allows(identity, "u1", Right.PRODUCE, now=0.0, leader_seen_at=0.0)


def test_an_older_grant_does_not_shorten_a_newer_one() -> None:
    held = book()
    held.add("alice", replace(GRANT, expires_at=50.0), now=0.0)
    assert held.allows("alice", "u1", Right.PRODUCE, now=99.0, leader_seen_at=99.0)


def test_one_identity_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "MAX_GRANTS_PER_IDENTITY", 2)
    held = book()
    held.add("alice", replace(GRANT, uid="u2", expires_at=5000.0), now=0.0)
    with pytest.raises(PermissionDenied, match="a broker keeps 2 grants"):
        held.add("alice", replace(GRANT, uid="u3", expires_at=5000.0), now=1.0)
    held.add("bob", replace(GRANT, identity="bob"), now=1.0)
    held.add("alice", replace(GRANT, uid="u3", expires_at=5000.0), now=101.0 + LEADERLESS_GRACE_SECONDS)
    assert held.allows("alice", "u3", Right.PRODUCE, now=4999.0, leader_seen_at=4999.0)


def test_what_has_expired_is_forgotten() -> None:
    held = book()
    held.drop_expired(now=101.0 + LEADERLESS_GRACE_SECONDS)
    assert not held.allows("alice", "u1", Right.PRODUCE, now=1.0, leader_seen_at=1.0)
