"""The listener speaks TLS with the broker's certificate, and goes on when that is replaced."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from smq_broker.access.anonymous import AnonymousAccess
from smq_broker.kafka.protocol.messages import API_VERSIONS, ClientConnection, ProtocolError
from smq_broker.kafka.protocol.sessions import ConnectionAccess
from smq_broker.kafka.security.clear_connections import ClearConnections
from smq_broker.kafka.security.login import SASL_AUTHENTICATE, SASL_HANDSHAKE
from smq_broker.kafka.transport import either_server
from smq_broker.kafka.transport.listener import KafkaListener
from smq_broker.kafka.transport.tls import ServerTls
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
    def __init__(self, certificate: Certificate | None, clear_access: ConnectionAccess | None = None) -> None:
        self.tls = ServerTls(certificate)
        self.loop = asyncio.new_event_loop()
        self.listener = KafkaListener(
            "127.0.0.1:0",
            apis={},
            registry=CollectorRegistry(),
            threads=ThreadSupervisor(BrokerMetrics(CollectorRegistry())),
            tls=self.tls,
            clear_access=clear_access,
            loop=self.loop,
        )
        self.listener.start()

    def show(self, certificate: Certificate) -> None:
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (self.tls.show(certificate), done.set()))
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


def test_connections_receive_into_one_buffer(authority: CertificateAuthority, listening: Listening) -> None:
    """With one for each, a thousand connections that say nothing would take 256 MiB."""
    address = listening.listener.address
    with (
        TlsSocket(address, authority.roots, "127.0.0.1") as one,
        TlsSocket(address, authority.roots, "b1.example") as other,
    ):
        for _ in range(3):
            assert one.is_served() and other.is_served()
        buffers = {id(it._transport._ssl_protocol._ssl_buffer) for it in listening.listener._connections}  # type: ignore[attr-defined]
        assert len(listening.listener._connections) == 2 and len(buffers) == 1


def test_clear_text_gets_no_answer(listening: Listening) -> None:
    with KafkaSocket(listening.listener.address) as client:
        client.send(API_VERSIONS, 0, 1)
        while (received := client.socket.recv(1000)) != b"":
            assert received[0] == 0x15, "an alert of TLS, and nothing else"
    assert listening.tls.context is not None
    assert listening.tls.context.minimum_version is ssl.TLSVersion.TLSv1_2


# ---- in mode permissive


@pytest.fixture
def either(authority: CertificateAuthority) -> Iterator[tuple[Listening, BrokerMetrics]]:
    metrics = BrokerMetrics(CollectorRegistry())
    made = Listening(None, ClearConnections(AnonymousAccess(metrics, str)))
    with capture_logs():
        yield made, metrics
    made.listener.stop(0.1)


def test_a_permissive_listener_serves_both_at_one_port_and_tls_once_there_is_a_certificate(
    authority: CertificateAuthority, either: tuple[Listening, BrokerMetrics]
) -> None:
    listening, metrics = either
    address = listening.listener.address
    with pytest.raises((ssl.SSLError, ConnectionError)):
        TlsSocket(address, authority.roots, "127.0.0.1")
    for _ in range(2):
        listening.show(issue(authority))
        with TlsSocket(address, authority.roots, "127.0.0.1") as client, KafkaSocket(address) as other:
            assert client.is_served()
            for number in range(3):
                other.send(API_VERSIONS, 0, number)
                assert other.receive(API_VERSIONS, 0)[1].api_keys
    assert metrics.registry.get_sample_value("smq_broker_open_calls_total", {"call": "kafka"}) == 2, "connections"


@pytest.mark.parametrize("api_key", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
async def test_nobody_logs_in_in_clear_text(api_key: int) -> None:
    access = ClearConnections(AnonymousAccess(BrokerMetrics(CollectorRegistry()), str))
    with pytest.raises(ProtocolError, match="SASL_SSL"):
        access.admit(ClientConnection("10.0.0.1:5"), api_key)


def test_who_says_nothing_or_no_tls_after_all_is_let_go(
    either: tuple[Listening, BrokerMetrics], authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening, _ = either
    listening.show(issue(authority))
    monkeypatch.setattr(either_server, "FIRST_BYTE_SECONDS", 0.05)
    monkeypatch.setattr(either_server, "HANDSHAKE_SECONDS", 0.05)
    with KafkaSocket(listening.listener.address) as client:
        assert client.has_ended()
    with KafkaSocket(listening.listener.address) as client:
        client.socket.sendall(b"\x16")
        assert client.has_ended()
    monkeypatch.setattr(either_server, "MAX_WAITING", 0)
    with KafkaSocket(listening.listener.address) as client:
        assert client.has_ended()


def test_nothing_of_a_key_is_on_a_disk(authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    tls = ServerTls(issue(authority))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda _, chain, key: loaded.extend((chain, key)))
    tls.show(issue(authority))
    assert len(loaded) == 2 and all(path.startswith("/dev/fd/") for path in loaded)
