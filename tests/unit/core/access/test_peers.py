from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.access.peers import EXPIRY_GRACE_SECONDS, Peer, Role, broker_server_name, parse_peer
from smq_core.errors import Unauthenticated

NAMES = st.text(min_size=1).filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text))


@given(role=st.sampled_from(Role), release=NAMES, name=NAMES, expires_at=st.integers(0, 2**40))
def test_a_name_in_a_certificate_gives_the_peer_back(role: Role, release: str, name: str, expires_at: int) -> None:
    peer = Peer(role, release, name, expires_at)
    assert parse_peer(peer.uri) == peer


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "smq://r/client/alice",
        "smq://r/client/alice?exp=soon",
        "smq://r/client/alice?exp=1&exp=2",
        "smq://r/admin/alice?exp=1",
        "smq://r/client/a/b?exp=1",
        "smq:///client/alice?exp=1",
        "smq://r/client/?exp=1",
        "https://r/client/alice?exp=1",
        "smq://r/client/alice?exp=1#leader",
        "smq://r/client/alice?exp=1&role=leader",
        "smq://[r/client/alice?exp=1",
    ],
)
def test_any_other_name_is_refused(uri: str) -> None:
    with pytest.raises(Unauthenticated):
        parse_peer(uri)


def test_an_identity_cannot_forge_another_role_or_release() -> None:
    peer = Peer(Role.CLIENT, "r1", "x/../../r2/leader/y?exp=99", 5)
    assert parse_peer(peer.uri) == peer


def test_a_connection_ends_a_little_after_its_certificate() -> None:
    peer = Peer(Role.CLIENT, "r", "alice", 100)
    assert not peer.has_expired(100 + EXPIRY_GRACE_SECONDS)
    assert peer.has_expired(101 + EXPIRY_GRACE_SECONDS)


def test_the_server_name_of_a_pod_is_a_dns_name() -> None:
    name = broker_server_name("0F8FAD5B-d9cb-469f-a165-70867728950e.6553f100.0123abcd")
    assert name == "0f8fad5b-d9cb-469f-a165-70867728950e.6553f100.0123abcd.broker.smq.internal"
    assert all(len(label) <= 63 for label in name.split("."))
