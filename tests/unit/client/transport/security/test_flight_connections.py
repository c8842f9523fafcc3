"""Encrypted connections to brokers are cut as others are, and say why a handshake failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow.flight as fl
import pytest

from smq.transport.dialer import DIRECT, Dialer
from smq.transport.flight_channel import FlightChannel
from smq.transport.leader_client import LeaderClient
from smq.transport.security.credentials import Credentials
from smq.transport.security.security_files import SecurityFiles
from smq_core.errors import Unreachable
from smq_core.model.entities import Replica
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from support.secure_release import TOKEN, SecureRelease
from support.waiting import HANG_GUARD, eventually


@pytest.fixture
def dialer(release: SecureRelease) -> Iterator[Dialer]:
    made = Dialer(None, Credentials(SecurityFiles(str(release.ca_file), None, TOKEN)))
    leader = LeaderClient([release.leader], timeout=HANG_GUARD, dialer=made)
    made.attach(leader.auth)
    yield made
    leader.close()
    made.close()


def test_each_channel_has_its_own_socket_which_cuts_it(release: SecureRelease, dialer: Dialer) -> None:
    broker = release.broker()
    may_end = threading.Event()
    broker.answer = lambda peer: may_end.wait(HANG_GUARD) and None
    first, second = (FlightChannel.open(broker.replica, dialer) for _ in range(2))
    ended: dict[FlightChannel, BaseException | None] = {}

    def call(channel: FlightChannel) -> None:
        options = fl.FlightCallOptions(timeout=HANG_GUARD)
        try:
            list(channel.client.do_action(fl.Action("claim", b""), options))
        except Exception as error:
            ended[channel] = error

    threads = {channel: threading.Thread(target=call, args=(channel,)) for channel in (first, second)}
    try:
        assert len(first._sockets) == len(second._sockets) == 1
        for thread in threads.values():
            thread.start()
        eventually(lambda: len(broker.peers) == 2)
        first.abort()
        threads[first].join(HANG_GUARD)
        assert isinstance(ended[first], fl.FlightUnavailableError) and second not in ended
    finally:
        may_end.set()
        for thread in threads.values():
            thread.join(HANG_GUARD)
        first.close()
        second.close()
    assert "has presented no grant" in str(ended[second]), "the broker has answered"


def test_a_login_that_takes_long_holds_up_no_other_connection(
    release: SecureRelease, dialer: Dialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = release.broker()
    FlightChannel.open(broker.replica, dialer).close()
    may_end, waits = threading.Event(), threading.Event()

    class Slow(Credentials):
        def certificate(self):  # type: ignore[no-untyped-def]
            waits.set()
            may_end.wait(HANG_GUARD)
            return dialer.credentials.certificate()  # type: ignore[union-attr]

    slow = Dialer(None, Slow(SecurityFiles(str(release.ca_file), None, TOKEN)))
    thread = threading.Thread(target=lambda: FlightChannel.open(broker.replica, slow).close())
    thread.start()
    assert waits.wait(HANG_GUARD)
    FlightChannel.open(broker.replica, dialer).close()
    may_end.set()
    thread.join(HANG_GUARD)


def test_a_broker_of_another_release_is_named(release: SecureRelease, dialer: Dialer) -> None:
    broker = release.broker()
    dialer.prepare()
    stranger = CertificateAuthority.create("another", now=time.time())
    assert dialer.credentials is not None and dialer.credentials._certificate is not None
    from dataclasses import replace

    dialer.credentials._certificate = replace(dialer.credentials._certificate, roots=stranger.roots)
    with pytest.raises(Unreachable, match="its certificate is not signed by the authorities of the CA file"):
        FlightChannel.open(broker.replica, dialer)


def test_a_broker_without_tls_is_named(dialer: Dialer) -> None:
    with fl.FlightServerBase("grpc://127.0.0.1:0") as server:
        replica = Replica("b", "i", f"127.0.0.1:{server.port}")
        with pytest.raises(Unreachable, match="does not speak TLS"):
            FlightChannel.open(replica, dialer)


def test_a_client_without_a_certificate_ends_in_the_handshake(release: SecureRelease) -> None:
    broker = release.broker()
    with pytest.raises(Unreachable, match="the connection was closed before it was ready"):
        FlightChannel.open(broker.replica, DIRECT)
    assert not broker.peers
