"""The listener speaks TLS with the broker's certificate, and goes on when that is replaced."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from smq_broker.kafka.protocol.messages import API_VERSIONS
from smq_broker.kafka.transport.listener import KafkaListener
from smq_broker.kafka.transport.tls import server_context, show
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import ThreadSupervisor
from smq_core.access.certificates import Certificate
from smq_core.access.peers import Peer, Role, broker_server_name
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from support.kafka_socket import KafkaSocket, TlsSocket
from support.waiting import HANG_GUARD


@pytest.fixture
def authority() -> CertificateAuthority:
    return CertificateAuthority.create("release-1", now=time.time())


def issue(authority: CertificateAuthority) -> Certificate:
    peer = Peer(Role.BROKER, "release-1", "i1", int(time.time()) + 3600)
    return authority.issue(peer, now=time.time(), server_names=[broker_server_name("i1"), "127.0.0.1", "b1.example"])


class Listening:
    def __init__(self, certificate: Certificate) -> None:
        self.context = server_context(certificate)
        self.loop = asyncio.new_event_loop()
        self.listener = KafkaListener(
            "127.0.0.1:0",
            apis={},
            registry=CollectorRegistry(),
            threads=ThreadSupervisor(BrokerMetrics(CollectorRegistry())),
            tls=self.context,
            loop=self.loop,
        )
        self.listener.start()

    def show(self, certificate: Certificate) -> None:
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (show(self.context, certificate), done.set()))
        assert done.wait(HANG_GUARD)


@pytest.fixture
def listening(authority: CertificateAuthority) -> Iterator[Listening]:
    made = Listening(issue(authority))
    yield made
    made.listener.stop(0.1)


@pytest.mark.parametrize("host", ["127.0.0.1", "b1.example", broker_server_name("i1")])
def test_a_client_verifies_the_host_that_it_connects_to(
    authority: CertificateAuthority, listening: Listening, host: str
) -> None:
    with TlsSocket(listening.listener.address, authority.roots, host) as client:
        assert client.is_served()


def test_another_host_or_another_root_is_not_trusted(authority: CertificateAuthority, listening: Listening) -> None:
    address, other = listening.listener.address, CertificateAuthority.create("release-1", now=time.time())
    for roots, host in ((authority.roots, "127.0.0.2"), (other.roots, "127.0.0.1")):
        with pytest.raises(ssl.SSLCertVerificationError):
            TlsSocket(address, roots, host)


def test_another_certificate_is_shown_to_new_connections_and_the_others_go_on(
    authority: CertificateAuthority, listening: Listening
) -> None:
    with TlsSocket(listening.listener.address, authority.roots, "127.0.0.1") as first:
        assert first.is_served()
        listening.show(issue(authority))
        with TlsSocket(listening.listener.address, authority.roots, "127.0.0.1") as second:
            assert second.is_served() and second.uses() != first.uses()
        assert first.is_served()


def test_clear_text_gets_no_answer(listening: Listening) -> None:
    with KafkaSocket(listening.listener.address) as client:
        client.send(API_VERSIONS, 0, 1)
        while (received := client.socket.recv(1000)) != b"":
            assert received[0] == 0x15, "an alert of TLS, and nothing else"
    assert listening.context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_nothing_of_a_key_is_on_a_disk(authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    context = server_context(issue(authority))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda _, chain, key: loaded.extend((chain, key)))
    show(context, issue(authority))
    assert len(loaded) == 2 and all(path.startswith("/dev/fd/") for path in loaded)
