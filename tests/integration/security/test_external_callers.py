"""Programs that a release knows by somebody outside: client certificates of a user's authority, tokens of an issuer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from cryptography.x509.oid import NameOID

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.oidc_issuer import AUDIENCE, Issuer
from support.processes.cli import smq as run_smq
from support.processes.secure_cluster import SecureCluster
from support.user_authority import UserAuthority
from support.waiting import HANG_GUARD, eventually

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
    more = (*flags, "--broker-arg=--kafka=127.0.0.1:0")
    with SecureCluster(folder / "c", seaweed.settings(f"external-{folder.name}"), more=more) as running:
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


@pytest.mark.slow
def test_a_kafka_client_logs_in_again_before_its_token_ends(cluster: SecureCluster, issuer: Issuer, topic: str) -> None:
    cluster.create(topic, partitioner="Kafka", partitions=1, segments={"max": 1})
    cluster.allow("oidc:alice", {"topics": [topic], "verbs": ["produce"]})
    tokens: list[str] = []
    outcomes: list[confluent_kafka.KafkaError | None] = []

    def token(_: str) -> tuple[str, float]:
        expires_at = time.time() + 6
        tokens.append(issuer.token(exp=expires_at))
        return tokens[-1], expires_at

    producer = confluent_kafka.Producer(kafka_options(cluster, token) | {"error_cb": outcomes.append})
    while len(tokens) < 4:
        producer.produce(topic, b"v", on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0.05)
    assert producer.flush(HANG_GUARD) == 0
    assert set(outcomes) == {None}, "no connection ended"


def test_a_kafka_client_enters_with_a_token_that_its_certificate_has_signed(
    cluster: SecureCluster, company: UserAuthority, tmp_path: Path, topic: str
) -> None:
    cluster.create(topic, partitioner="Kafka", partitions=1, segments={"max": 1})
    cluster.allow("cert:alice", {"topics": [topic], "verbs": ["produce"]})
    certificate, key = company.client_files(tmp_path, *ALICE)
    options = ("--ca-file", cluster.ca_file, "--cert-file", certificate, "--key-file", key)

    def token(_: str) -> tuple[str, float]:
        done = run_smq(*map(str, options), "auth", "token", leader=cluster.address)
        return done.out.strip(), time.time() + 600

    outcomes: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(kafka_options(cluster, token))
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(HANG_GUARD) == 0 and outcomes == [None]


def kafka_options(cluster: SecureCluster, token: Callable[[str], tuple[str, float]]) -> dict[str, Any]:
    addresses = [eventually(lambda it=it: cluster.kafka_address(it)) for it in cluster.pids()]  # type: ignore[misc]
    return {
        "bootstrap.servers": ",".join(addresses),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.ca_file),
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": token,
    }


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
