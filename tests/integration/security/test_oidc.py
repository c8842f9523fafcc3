"""Programs with tokens of an OpenID Connect issuer."""

from __future__ import annotations

from pathlib import Path

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.oidc_issuer import AUDIENCE, Issuer
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration


def test_a_program_enters_with_a_token_of_the_issuer(seaweed: SeaweedProcess, tmp_path: Path, topic: str) -> None:
    with Issuer() as issuer:
        flags = (f"--oidc-issuer={issuer.url}", f"--oidc-audience={AUDIENCE}")
        with SecureCluster(tmp_path / "c", seaweed.settings(f"oidc-{tmp_path.name}"), more=flags) as cluster:
            cluster.create(topic)
            cluster.allow("oidc:alice", {"topics": [topic], "verbs": ["produce"]})
            token_file = tmp_path / "token"
            token_file.write_text(issuer.token(groups=["analysts"]))
            with smq.connect(cluster.address, ca_file=cluster.ca_file, token_file=token_file) as client:
                me = client.admin().whoami()
                assert (me.identity, me.method, me.groups) == ("oidc:alice", "OIDC", ("oidc:analysts",))
                with client.producer(topic) as producer:
                    producer.send(b"a").result(HANG_GUARD)
                with pytest.raises(smq.PermissionDenied, match="oidc:alice may not"):
                    client.consumer(topic)
            token_file.write_text(issuer.token(aud="another"))
            with (
                smq.connect(cluster.address, ca_file=cluster.ca_file, token_file=token_file) as client,
                pytest.raises(smq.Unauthenticated, match="audience smq"),
            ):
                client.admin().whoami()
