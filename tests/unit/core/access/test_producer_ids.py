"""A producer id names the identity that made it, and no other one can have the same."""

from __future__ import annotations

import itertools

import pytest

from smq_core.access.producer_ids import ANYBODY, Claimant, id_of, is_own, require_own
from smq_core.errors import PermissionDenied

IDENTITIES = ("alice", "bob", "alice@corp", "corp", "al%40ice", "al@ice", "système:été", "a/b:c", "@", "")
PRODUCERS = ("p", "p@alice", "p@", "@", "p@alice@corp", "p%40alice")


def test_no_two_identities_share_an_id() -> None:
    made = [id_of(producer, identity) for producer in PRODUCERS for identity in IDENTITIES if identity]
    assert len(set(made)) == len(made)
    for producer, identity, other in itertools.product(PRODUCERS, IDENTITIES, IDENTITIES):
        if identity:
            assert is_own(id_of(producer, identity), other) is (identity == other), (producer, identity, other)
    assert all(it.isprintable() for it in made)


def test_an_id_without_an_identity_is_nobodys() -> None:
    assert id_of("p", "") == "p"
    assert not any(is_own("p", identity) for identity in IDENTITIES)


@pytest.mark.parametrize(
    ("producer_id", "words"),
    [
        ("p@alice", "producer id 'p' is one of alice, so bob may not use it"),
        ("p@al%40ice", "is one of al@ice"),
        ("p", "producer id 'p' is of no identity"),
        ("@bob@", "producer id '@bob' is of no identity"),
    ],
)
def test_another_needs_to_administer_the_topic(producer_id: str, words: str) -> None:
    with pytest.raises(PermissionDenied) as caught:
        require_own(Claimant("bob", "travel/flights", administers=False), producer_id)
    error = caught.value
    assert words in error.message and error.identity == "bob"
    assert error.access == 'create topics/administer "flights" in namespace "travel"' and error.access in error.message
    require_own(Claimant("bob", "travel/flights", administers=True), producer_id)
    require_own(ANYBODY, producer_id)
    require_own(Claimant("bob", "travel/flights", administers=False), "p@bob")
