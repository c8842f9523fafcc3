"""A broker asks the leader with the tokens of Kafka clients, and with no other token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq_broker.leader_client.callers_of_kafka import CallersOfKafka
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied, Unauthenticated, Unavailable
from smq_proto.signed_grants import GrantVerifier
from support.secure_release import ME, TOKEN, TOPIC, SecureRelease

OWN = "the-brokers-own-token"


@pytest.fixture
def release(tmp_path: Path) -> Iterator[SecureRelease]:
    made = SecureRelease(tmp_path)
    yield made
    made.stop()


def callers_of(release: SecureRelease, *leaders: str) -> CallersOfKafka:
    """Those of a broker whose own token would be good, too."""
    release.tokens[OWN] = "a broker"
    release.token_file.write_text(OWN)
    channels = LeaderChannels(str(release.ca_file), str(release.token_file))
    return CallersOfKafka(lambda: leaders or (release.leader,), channels)


def test_each_call_carries_the_token_of_its_client(release: SecureRelease) -> None:
    callers = callers_of(release)
    release.tokens["another"] = "ada"
    assert [callers.who_am_i(it).identity for it in (TOKEN, "another", TOKEN)] == [ME, "ada", ME]
    (grant,) = callers_grants(callers, release, {Right.PRODUCE})
    assert (grant.identity, grant.topic, grant.right) == (ME, TOPIC, Right.PRODUCE)
    assert callers.may(TOKEN, "produce", TOPIC) and not callers.may(TOKEN, "delete", TOPIC)


def callers_grants(callers: CallersOfKafka, release: SecureRelease, rights: set[Right]) -> list:  # type: ignore[type-arg]
    release.rights[TOPIC] = rights
    verifier = GrantVerifier([release.signer.public_key])
    return [verifier.verify(it) for it in callers.grants(TOKEN, TOPIC).grants]


def test_what_the_leader_refuses_is_the_leaders_error(release: SecureRelease) -> None:
    callers = callers_of(release)
    with pytest.raises(Unauthenticated):
        callers.who_am_i("nobody's")
    release.rights[TOPIC] = set()
    with pytest.raises(PermissionDenied, match=f"{ME} has no right"):
        callers.grants(TOKEN, TOPIC)


def test_without_a_leader_nothing_is_known_and_another_one_is_tried(release: SecureRelease, tmp_path: Path) -> None:
    release.away = True
    with pytest.raises(Unavailable, match="away"):
        callers_of(release).who_am_i(TOKEN)
    release.away = False
    assert callers_of(release, "127.0.0.1:1", release.leader).who_am_i(TOKEN).identity == ME
    with pytest.raises(Unavailable, match="does not answer"):
        callers_of(release, "127.0.0.1:1").who_am_i(TOKEN)


def test_a_token_goes_to_a_leader_of_the_release_only(release: SecureRelease, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    other = SecureRelease(folder)
    try:
        with pytest.raises(Unavailable):
            callers_of(release, other.leader).who_am_i(TOKEN)
        assert other.calls == {}
    finally:
        other.stop()
