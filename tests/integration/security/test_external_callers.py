"""Programs that a release knows by somebody outside: client certificates of a user's authority, tokens of an issuer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.oidc_issuer import AUDIENCE, Issuer
from support.processes.cli import smq as run_smq
from support.processes.secure_cluster import SecureCluster
from support.user_authority import UserAuthority
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration
ALICE = ((NameOID.COMMON_NAME, "alice"), (NameOID.ORGANIZATION_NAME, "analysts"))


@pytest.fixture(scope="module")
def company() -> UserAuthority:
    return UserAuthority("company")


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(
    seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory, company: UserAuthority, issuer: Issuer
) -> Iterator[SecureCluster]:
    """It knows callers of both."""
    folder = tmp_path_factory.mktemp("external")
    authorities = folder / "clients.crt"
    authorities.write_bytes(company.pem)
    flags = (f"--client-ca-file={authorities}", f"--oidc-issuer={issuer.url}", f"--oidc-audience={AUDIENCE}")
    with SecureCluster(folder / "c", seaweed.settings(f"external-{folder.name}"), more=flags) as running:
        yield running


def test_a_program_enters_with_a_client_certificate(
    cluster: SecureCluster, company: UserAuthority, tmp_path: Path, topic: str
) -> None:
    department = UserAuthority("department", above=company)
    certificate, key = department.client_files(tmp_path, *ALICE)
    check_caller(cluster, topic, "cert", "ClientCertificate", cert_file=certificate, key_file=key)
    options = ("--ca-file", cluster.ca_file, "--cert-file", certificate, "--key-file", key)
    done = run_smq(*map(str, options), "auth", "whoami", "--output", "json", leader=cluster.address)
    assert json.loads(done.out)["identity"] == "cert:alice", done.err
    certificate, key = UserAuthority("company").client_files(tmp_path, *ALICE)
    certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
    with (
        smq.connect(cluster.address, ca_file=cluster.ca_file, cert_file=certificate) as client,
        pytest.raises(smq.Unauthenticated, match="--client-ca-file"),
    ):
        client.admin().whoami()


def test_a_program_enters_with_a_token_of_the_issuer(
    cluster: SecureCluster, issuer: Issuer, tmp_path: Path, topic: str
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(issuer.token(groups=["analysts"]))
    check_caller(cluster, topic, "oidc", "OIDC", token_file=token_file)
    token_file.write_text(issuer.token(aud="another"))
    with (
        smq.connect(cluster.address, ca_file=cluster.ca_file, token_file=token_file) as client,
        pytest.raises(smq.Unauthenticated, match="audience smq"),
    ):
        client.admin().whoami()


def check_caller(cluster: SecureCluster, topic: str, prefix: str, method: str, **files: Path) -> None:
    """Alice of the analysts has the right that she gets, and no other."""
    identity = f"{prefix}:alice"
    cluster.create(topic)
    cluster.allow(identity, {"topics": [topic], "verbs": ["produce"]})
    with smq.connect(cluster.address, ca_file=cluster.ca_file, **files) as client:
        me = client.admin().whoami()
        assert (me.identity, me.method, me.groups) == (identity, method, (f"{prefix}:analysts",))
        with client.producer(topic) as producer:
            producer.send(b"a").result(HANG_GUARD)
        with pytest.raises(smq.PermissionDenied, match=f"{identity} may not"):
            client.consumer(topic)
