"""Programs with client certificates of an authority of the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.secure_cluster import SecureCluster
from support.user_authority import UserAuthority
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration


def test_a_program_enters_with_a_client_certificate(seaweed: SeaweedProcess, tmp_path: Path, topic: str) -> None:
    company, (authorities, cert_file, key_file) = UserAuthority("company"), _paths(tmp_path)
    authorities.write_bytes(company.pem)
    department = UserAuthority("department", above=company)
    chain, key = department.client((NameOID.COMMON_NAME, "alice"), (NameOID.ORGANIZATION_NAME, "analysts"))
    cert_file.write_bytes(chain + department.pem)
    key_file.write_bytes(key)
    flags = (f"--client-ca-file={authorities}",)
    with SecureCluster(tmp_path / "c", seaweed.settings(f"cert-{tmp_path.name}"), more=flags) as cluster:
        cluster.create(topic)
        cluster.allow("cert:alice", {"topics": [topic], "verbs": ["produce"]})
        files = {"ca_file": cluster.ca_file, "cert_file": cert_file, "key_file": key_file}
        with smq.connect(cluster.address, **files) as client:
            me = client.admin().whoami()
            assert (me.identity, me.method, me.groups) == ("cert:alice", "ClientCertificate", ("cert:analysts",))
            with client.producer(topic) as producer:
                producer.send(b"a").result(HANG_GUARD)
            with pytest.raises(smq.PermissionDenied, match="cert:alice may not"):
                client.consumer(topic)
        assert _whoami(cluster, cert_file, key_file) == "cert:alice"
        chain, key = UserAuthority("company").client((NameOID.COMMON_NAME, "alice"))
        cert_file.write_bytes(chain + key)
        with (
            smq.connect(cluster.address, ca_file=cluster.ca_file, cert_file=cert_file) as client,
            pytest.raises(smq.Unauthenticated, match="--client-ca-file"),
        ):
            client.admin().whoami()


def _paths(folder: Path) -> tuple[Path, Path, Path]:
    return folder / "clients.crt", folder / "tls.crt", folder / "tls.key"


def _whoami(cluster: SecureCluster, cert_file: Path, key_file: Path) -> str:
    """What `smq` prints with the certificate."""
    options = ["--ca-file", cluster.ca_file, "--cert-file", cert_file, "--key-file", key_file]
    words = [sys.executable, "-m", "smq.cli", "--leader", cluster.address, *map(str, options)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SMQ_")}
    done = subprocess.run(
        [*words, "auth", "whoami", "--output", "json"], capture_output=True, text=True, env=environment, check=True
    )
    return str(json.loads(done.stdout)["identity"])
