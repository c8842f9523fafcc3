"""A client logs in when it has to, presents its grants, renews both, and gives up only what no retry can change."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.flight as fl
import pytest

from smq.transport.dialer import Dialer
from smq.transport.leader_client import LeaderClient
from smq.transport.security import credentials as credentials_module
from smq.transport.security.credentials import Credentials
from smq.transport.security.security_files import SecurityFiles
from smq_core.access.rights import Right
from smq_core.errors import (
    GrantMissing,
    PermissionDenied,
    SmqError,
    Unauthenticated,
    Unavailable,
    Unreachable,
    WrongIncarnation,
)
from smq_proto.v1 import data_pb2 as pb
from support.secure_release import ME, TOKEN, TOPIC, SecureBroker, SecureRelease
from support.waiting import HANG_GUARD, eventually

REQUEST = pb.ClaimProducer(topic=TOPIC)


class Client:
    """The credentials of a client, whose clock the test may set."""

    def __init__(self, release: SecureRelease, **files: Any) -> None:
        import time

        self.ahead = 0.0
        chosen = SecurityFiles(str(release.ca_file), **(files or {"token_file": str(release.token_file)}))
        self.credentials = Credentials(chosen, lambda: time.time() + self.ahead)
        self.dialer = Dialer(None, self.credentials)
        self.leader = LeaderClient([release.leader], timeout=HANG_GUARD, dialer=self.dialer)
        self.dialer.attach(self.leader.auth)

    def close(self) -> None:
        self.leader.close()
        self.dialer.close()

    def claim(self, flight: fl.FlightClient) -> bytes:
        return self.dialer.call(flight, TOPIC, "claim", REQUEST, timeout=HANG_GUARD)


@pytest.fixture
def broker(release: SecureRelease) -> SecureBroker:
    return release.broker()


@pytest.fixture
def client(release: SecureRelease) -> Iterator[Client]:
    made = Client(release)
    yield made
    made.close()


# ---- certificates


def test_it_logs_in_once_for_all_connections(client: Client, release: SecureRelease, broker: SecureBroker) -> None:
    threads = [threading.Thread(target=client.dialer.prepare) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_GUARD)
    for _ in range(2):
        with client.dialer.flight(broker.replica) as flight:
            client.claim(flight)
    assert release.calls["Login"] == 1
    assert {peer.name for peer in broker.peers} == {ME}


def test_a_certificate_that_has_ended_is_not_used(client: Client, release: SecureRelease) -> None:
    first = client.credentials.certificate()
    client.ahead = release.certificate_life
    assert client.credentials.certificate() is not first


def test_without_an_end_it_needs_no_leader(client: Client, release: SecureRelease, broker: SecureBroker) -> None:
    with client.dialer.flight(broker.replica) as flight:
        client.claim(flight)
    release.away = True
    with client.dialer.flight(broker.replica) as flight:
        assert client.claim(flight) == b"done"


def test_another_process_at_the_address_of_a_broker_is_not_taken_for_it(
    client: Client, release: SecureRelease, broker: SecureBroker
) -> None:
    from dataclasses import replace

    elsewhere = replace(broker.replica, incarnation="Incarnation-2")
    with client.dialer.flight(elsewhere) as flight, pytest.raises(Unreachable, match="that of another process"):
        client.claim(flight)
    assert not broker.peers


def test_the_token_is_read_anew(client: Client, release: SecureRelease) -> None:
    client.dialer.prepare()
    release.tokens = {"another": ME}
    client.ahead = release.certificate_life
    with pytest.raises(Unauthenticated, match="nobody has this token"):
        client.dialer.prepare()
    release.token_file.write_text("another\n")
    client.dialer.prepare()


def test_a_token_file_that_is_gone_is_named_at_once(client: Client, release: SecureRelease) -> None:
    release.token_file.unlink()
    with pytest.raises(Unauthenticated, match=f"token file {release.token_file} cannot be read: No such file"):
        client.dialer.prepare()


def test_the_certificate_is_renewed_in_the_background(
    client: Client, release: SecureRelease, broker: SecureBroker
) -> None:
    release.certificate_life = 1.0
    with client.dialer.flight(broker.replica) as flight:
        assert not client.dialer.is_outdated(flight)
        eventually(lambda: client.dialer.is_outdated(flight), what="there is another certificate")


# ---- a broker that does not know who calls


def test_a_connection_with_a_replaced_certificate_is_opened_again(
    client: Client, release: SecureRelease, broker: SecureBroker
) -> None:
    with client.dialer.flight(broker.replica) as flight:
        client.ahead = release.certificate_life
        client.dialer.prepare()
        expired = Unauthenticated("expired")
        assert client.dialer.recover(expired, flight, TOPIC) is None
        assert release.calls["Login"] == 2, "the new one is there"


def test_a_new_certificate_that_is_refused_is_the_end(
    client: Client, release: SecureRelease, broker: SecureBroker
) -> None:
    error = Unauthenticated("never")
    with client.dialer.flight(broker.replica) as flight:
        assert client.dialer.recover(error, flight, TOPIC) is None, "it may have ended by another clock"
    with client.dialer.flight(broker.replica) as flight:
        assert client.dialer.recover(error, flight, TOPIC) is error
    assert release.calls["Login"] == 2


def test_a_call_over_a_refused_connection_says_that_it_has_to_be_opened_again(
    client: Client, broker: SecureBroker
) -> None:
    with client.dialer.flight(broker.replica) as flight:
        client.claim(flight)
        broker.answer = lambda peer: Unauthenticated("expired")
        with pytest.raises(Unreachable, match="connect again"):
            client.claim(flight)


@pytest.mark.parametrize("error", [WrongIncarnation("x"), Unavailable("x"), Unreachable("x")])
def test_other_errors_stay_as_they_are(client: Client, broker: SecureBroker, error: SmqError) -> None:
    with client.dialer.flight(broker.replica) as flight:
        assert client.dialer.recover(error, flight, TOPIC) is error


# ---- grants


def test_grants_are_presented_once_to_each_broker(client: Client, release: SecureRelease, broker: SecureBroker) -> None:
    other = release.broker("Incarnation-2")
    for _ in range(2):
        for at in (broker, other):
            with client.dialer.flight(at.replica) as flight:
                client.claim(flight)
    assert (len(broker.presented), len(other.presented)) == (1, 1)
    assert release.calls["GetGrants"] == 1


def test_grants_are_renewed_and_presented_to_brokers_that_are_in_use(
    client: Client, release: SecureRelease, broker: SecureBroker
) -> None:
    release.grant_life = 1.0
    left = release.broker("Incarnation-2")
    with client.dialer.flight(left.replica) as flight:
        client.claim(flight)
    del flight
    gc.collect()
    with client.dialer.flight(broker.replica) as flight:
        client.claim(flight)
        eventually(lambda: len(broker.presented) >= 3, what="grants are presented again")
        assert len(left.presented) == 1


def test_nothing_is_renewed_while_nothing_is_used(
    client: Client, release: SecureRelease, broker: SecureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials_module, "MIN_RENEWAL_SECONDS", 0.01)
    release.certificate_life = release.grant_life = 0.1
    with client.dialer.flight(broker.replica) as flight:
        client.claim(flight)
    del flight
    gc.collect()
    eventually(lambda: client.credentials._thread is None, what="the thread ends")


def test_a_grant_that_a_broker_lacks_is_presented_again(
    client: Client, release: SecureRelease, broker: SecureBroker
) -> None:
    with client.dialer.flight(broker.replica) as flight:
        client.claim(flight)
        broker.book = type(broker.book)(release.authority.release)
        assert client.claim(flight) == b"done"
    assert release.calls["GetGrants"] == 2 and len(broker.presented) == 2


def test_a_broker_that_never_takes_the_grants_is_believed_in_the_end(client: Client, broker: SecureBroker) -> None:
    broker.answer = lambda peer: GrantMissing("no grant", identity=ME, topic=TOPIC, right="produce")
    with client.dialer.flight(broker.replica) as flight:
        with pytest.raises(GrantMissing):
            client.claim(flight)
        with pytest.raises(PermissionDenied, match="does not take the leader's grants: no grant") as caught:
            client.claim(flight)
    assert not caught.value.retry


@pytest.mark.parametrize(
    ("rights", "words"),
    [(set(), f"{ME} has no right to {TOPIC}"), ({Right.CONSUME}, f"{ME} may not produce: give it a Role")],
)
def test_a_right_that_is_taken_away_ends_with_the_words_of_the_leader(
    client: Client, release: SecureRelease, broker: SecureBroker, rights: set[Right], words: str
) -> None:
    with client.dialer.flight(broker.replica) as flight:
        client.claim(flight)
        release.rights[TOPIC] = rights
        broker.book = type(broker.book)(release.authority.release)
        with pytest.raises(PermissionDenied, match=words) as caught:
            client.claim(flight)
    assert not isinstance(caught.value, GrantMissing)


def test_a_right_that_is_missing_is_known_at_once(client: Client, release: SecureRelease) -> None:
    release.rights[TOPIC] = {Right.CONSUME}
    client.dialer.require(TOPIC, Right.CONSUME)
    with pytest.raises(PermissionDenied, match="may not produce: give it a Role"):
        client.dialer.require(TOPIC, Right.PRODUCE)
    release.rights[TOPIC].add(Right.PRODUCE)
    client.dialer.require(TOPIC, Right.PRODUCE)


def test_a_leader_that_is_away_ends_nothing(client: Client, release: SecureRelease, broker: SecureBroker) -> None:
    error = GrantMissing("no grant", topic=TOPIC, right="produce")
    client.leader.timeout = 0.2
    with client.dialer.flight(broker.replica) as flight:
        client.claim(flight)
        release.away = True
        assert isinstance(client.dialer.recover(error, flight, TOPIC), Unavailable)


# ---- secrets


@pytest.mark.parametrize("show", [repr, str])
def test_nothing_secret_is_shown(release: SecureRelease, show: Callable[[object], str]) -> None:
    client = Client(release, token=TOKEN)
    try:
        key = client.credentials.certificate().key.decode()
        for shown in (client.credentials, client.dialer, client.credentials.files, client.credentials.certificate()):
            assert TOKEN not in show(shown) and key.splitlines()[1] not in show(shown)
    finally:
        client.close()
