"""Only names that no web page can claim reach the HTTP ports."""

from __future__ import annotations

import pytest

from smq_core.model.http_hosts import is_cluster_host


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.1:8080", "10.1.2.3:80", "[::1]", "[::1]:8080", "[fe80::1%eth0]:80", "localhost:7070",
        "smq-leader", "SMQ-Leader:80", "smq.ns.svc", "smq.ns.svc:80", "smq.ns.svc.cluster.local:80",
        "node7.local", "ip-10-0-0-1.ec2.internal", "smq.ns.svc.cluster.local.",
    ],
)  # fmt: skip
def test_addresses_and_private_names_are_served(host: str) -> None:
    assert is_cluster_host(host)


@pytest.mark.parametrize(
    "host", ["", ":80", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[]", "x.svc.evil.example"]
)
def test_public_names_are_not(host: str) -> None:
    assert not is_cluster_host(host)


def test_names_that_were_chosen_are_served() -> None:
    chosen = {"smq.example.org"}
    assert is_cluster_host("SMQ.example.org:443", chosen) and not is_cluster_host("www.smq.example.org", chosen)
