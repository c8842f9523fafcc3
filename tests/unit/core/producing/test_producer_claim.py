"""Which process gets which epoch of a producer id."""

from __future__ import annotations

import itertools

import pytest

from smq_core.access.producer_ids import Claimant
from smq_core.errors import PermissionDenied, ProducerFenced
from smq_core.producing.producer_claim import ProducerClaim, claim_producer


def at_epoch(epoch: int, instance: str, now: int) -> ProducerClaim:
    return ProducerClaim(producer="p", epoch=epoch, instance=instance, claimed_at=now)


LAST = at_epoch(4, "i", 10)
NOW = 20


@pytest.mark.parametrize(
    ("last", "instance", "epoch", "expected"),
    [
        (None, "i", None, at_epoch(0, "i", NOW)),
        (None, "i", 7, at_epoch(7, "i", NOW)),
        (LAST, "j", None, at_epoch(5, "j", NOW)),
        (LAST, "j", 5, at_epoch(5, "j", NOW)),
        (LAST, "j", 9, at_epoch(9, "j", NOW)),
        # The answer to the first request of this process was lost.
        (LAST, "i", None, LAST),
        (LAST, "i", 4, LAST),
        (LAST, "i", 6, at_epoch(6, "i", NOW)),
    ],
)
def test_a_claim(last: ProducerClaim | None, instance: str, epoch: int | None, expected: ProducerClaim) -> None:
    assert claim_producer(last, "p", instance, epoch, NOW) == expected


@pytest.mark.parametrize(
    ("instance", "epoch", "why"), [("j", 4, "claimed by another process"), ("j", 3, "older"), ("i", 3, "older")]
)
def test_an_epoch_that_is_taken_or_past_is_refused(instance: str, epoch: int, why: str) -> None:
    with pytest.raises(ProducerFenced, match=why) as raised:
        claim_producer(LAST, "p", instance, epoch, NOW)
    assert raised.value.epoch == 4
    assert "without epoch=" in raised.value.message and "epoch=5" in raised.value.message


def test_each_start_fences_the_one_before() -> None:
    claim = None
    for n, instance in enumerate("abc"):
        claim = claim_producer(claim, "p", instance, None, NOW)
        assert (claim.epoch, claim.instance) == (n, instance)


def claimed_by(
    identity: str, last: ProducerClaim | None, instance: str, administers: bool = False, epoch: int | None = None
) -> ProducerClaim:
    return claim_producer(last, "p", instance, epoch, NOW, Claimant(identity, "travel/flights", administers))


def test_an_id_stays_with_the_identity_that_made_it() -> None:
    made = claimed_by("alice", None, "i")
    assert claimed_by("alice", made, "i") is made
    again = claimed_by("alice", made, "j")
    assert (again.identity, again.epoch) == ("alice", 1)
    for instance, epoch in itertools.product(("j", "k"), (None, 1, 7)):
        with pytest.raises(PermissionDenied, match="'p' is one of alice, so bob may not use it") as caught:
            claimed_by("bob", again, instance, epoch=epoch)
        assert caught.value.access == 'create topics/administer "flights" in namespace "travel"'
    replaced = claimed_by("admin", again, "k", administers=True)
    assert (replaced.identity, replaced.epoch) == ("alice", 2), "an administrator writes with it, and it stays alice's"


def test_an_id_of_an_open_release_is_the_first_identitys_that_claims_it() -> None:
    taken = claimed_by("alice", LAST, "j")
    assert (taken.identity, taken.epoch) == ("alice", 5)
    repeated = claimed_by("alice", LAST, "i")
    assert (repeated.identity, repeated.epoch, repeated.instance) == ("alice", 4, "i"), "also by a repeated claim"
    with pytest.raises(PermissionDenied):
        claimed_by("bob", taken, "k")
    reopened = claim_producer(taken, "p", "k", None, NOW)
    assert (reopened.identity, reopened.epoch) == ("alice", 6), "without security nobody is known"
