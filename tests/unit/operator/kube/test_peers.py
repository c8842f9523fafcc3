"""Operators find out which of them leads, also where each call needs a token and the API server is away."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

from smq_core.model.addresses import split_address
from smq_operator.api.server import make_server
from smq_operator.kube.election.peers import leading_peer, leads, open_channel, secure_dialer
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.security.release_security import peer_tokens
from smq_operator.kube.settings import COMPONENT_LABEL
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from support.leader_access import NotingHandlers, secure_api


async def test_a_secure_operator_is_recognised_by_its_peers_alone(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time) as api:
        roots, address = api.security.authority.roots, api.address
        assert await leads(address, secure_dialer(lambda: roots, api.tokens.issue("operator")))
        assert [call for call, _ in api.handlers.seen] == ["Admin.ListBrokers"]
        stranger = CertificateAuthority.create("release-1", now=time.time())
        assert not await leads(address, secure_dialer(lambda: stranger.roots, api.tokens.issue("operator")))
        assert not await leads(address, secure_dialer(lambda: roots, peer_tokens(b"x" * 32).issue("operator")))
        assert not await leads(address, open_channel)
        assert len(api.handlers.seen) == 1


async def test_peers_are_found_in_each_mode_while_a_release_is_being_secured(tmp_path: Path) -> None:
    """A permissive operator calls the others in both ways: some are still open, others are required already."""
    async with secure_api(tmp_path, time.time) as api:
        dials = [open_channel, secure_dialer(lambda: api.security.authority.roots, api.tokens.issue("operator"))]
        assert await leading_peer(peers_at(api.address), "me", dials) == api.address
        assert await leading_peer(peers_at(api.address), "me", dials[:1]) == ""
        server = make_server("127.0.0.1:0", None, TopicDirectory)
        await server.start(api.handlers.services)
        try:
            clear = f"127.0.0.1:{server.port}"
            assert await leading_peer(peers_at(clear), "me", dials) == clear
            assert await leading_peer(peers_at(clear), "me", dials[1:]) == ""
        finally:
            await server.stop()


def peers_at(address: str) -> ResourceCache:
    """One other operator."""
    host, port = split_address(address)
    ports = [{"name": "grpc", "containerPort": port}]
    pod = {
        "metadata": {"labels": {COMPONENT_LABEL: "operator"}},
        "spec": {"containers": [{"ports": ports}]},
        "status": {"podIP": host},
    }
    return SimpleNamespace(pods={("smq", "other"): pod})  # type: ignore[return-value]


async def test_a_peers_token_follows_from_the_keys_of_the_release() -> None:
    made, again = peer_tokens(b"k" * 32), peer_tokens(b"k" * 32)
    assert (await again.verify(made.issue("operator"))).incarnation == "operator"


async def test_an_open_operator_leads_if_it_answers() -> None:
    handlers = NotingHandlers()
    server = make_server("127.0.0.1:0", None, TopicDirectory)
    await server.start(handlers.services)
    try:
        assert await leads(f"127.0.0.1:{server.port}", open_channel)
    finally:
        await server.stop()
    assert not await leads(f"127.0.0.1:{server.port}", open_channel)
