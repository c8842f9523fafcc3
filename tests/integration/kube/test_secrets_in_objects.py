"""Whoever may read Events, statuses and all other objects, but no Secrets, finds no secret of a secure release."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import smq
from smq_storage.object_store.store import StoreSettings
from support.kube.accounts import account, account_token
from support.kube.client import KubeClient
from support.kube.operator_process import OperatorProcess, broker_in_pod, deployment_of, pod_of, topic
from support.processes.broker import BrokerProcess
from support.secret_search import SecretSearch
from support.user_authority import UserAuthority
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]
KINDS = [
    *(("v1", it) for it in ("Event", "Pod", "ConfigMap", "ServiceAccount")),
    *(("seaweedmq.io/v1alpha1", it) for it in ("Topic", "Segment")),
    *(("events.k8s.io/v1", "Event"), ("apps/v1", "Deployment"), ("coordination.k8s.io/v1", "Lease")),
]


class Release:
    """A secure release whose authority a user gives. ``search`` knows its secrets."""

    def __init__(self, kube: KubeClient, operator: OperatorProcess, folder: Path, search: SecretSearch) -> None:
        self.kube, self.operator, self.namespace = kube, operator, operator.namespace
        self.folder, self.search = folder, search
        self.brokers: list[BrokerProcess] = []
        self.ca_file = folder / "ca.crt"
        certificate, key = UserAuthority("corporation").intermediate("smq")
        search.add_pem("the key of the authority", key)
        self.certificate, self.key = certificate, key
        given = {"tls.crt": certificate, "tls.key": key}
        self.given = kube.create(self.object("Secret", "smq-ca", data=encoded(given)))
        for name in ("smq-broker", "app"):
            account(kube, self.namespace, name)
        kube.create(deployment_of(self.namespace, "operator"))

    def object(self, kind: str, name: str, api: str = "v1", **more: Any) -> dict[str, Any]:
        return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}, **more}

    def start(self) -> None:
        self.operator.start("--security=required", "--ca-secret=smq-ca")
        roots = self.kube.get(self.object("ConfigMap", "smq-security-roots"))
        self.ca_file.write_text(roots["data"]["ca.crt"])
        self.secret = self.kube.get(self.object("Secret", "smq-security"))
        grants, stored = (base64.b64decode(self.secret["data"][it]) for it in ("grants.key", "authorities.json"))
        self.search.add_bytes("grants.key", grants)
        assert all(it["key"].encode() == self.key for it in json.loads(stored)["authorities"])

    def token_file(self, name: str, pod: dict[str, Any] | None = None, audience: str = "") -> Path:
        token = account_token(self.kube, self.namespace, name, audience or f"smq.{self.namespace}.smq", pod)
        # Its beginning is the same in all of them.
        self.search.add_token(f"token {len(self.search.forms)} of {name}", token.rpartition(".")[2])
        file = self.folder / f"{len(self.search.forms)}.token"
        file.write_text(token)
        return file

    def start_broker(self, name: str, store: StoreSettings) -> None:
        pod = self.kube.create(pod_of(name, self.namespace, "broker", serviceAccountName="smq-broker"))
        flags = (f"--ca-file={self.ca_file}", f"--token-file={self.token_file('smq-broker', pod)}")
        self.brokers.append(broker_in_pod(pod, self.folder, store, self.operator.listen, "--log-level=debug", *flags))

    def connect(self, token_file: Path) -> smq.Client:
        return smq.connect(
            self.operator.listen, namespace=self.namespace, timeout=30, ca_file=self.ca_file, token_file=token_file
        )

    def allow(self, name: str, **rule: list[str]) -> None:
        rbac = "rbac.authorization.k8s.io"
        rules = [{"apiGroups": ["seaweedmq.io"], "verbs": ["create"], **rule}]
        self.kube.create(self.object("Role", name, f"{rbac}/v1", rules=rules))
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        reference = {"apiGroup": rbac, "kind": "Role", "name": name}
        self.kube.create(self.object("RoleBinding", name, f"{rbac}/v1", roleRef=reference, subjects=[subject]))

    def events(self) -> list[dict[str, Any]]:
        return self.kube.list("v1", "Event", self.namespace)

    def damage(self, secret: dict[str, Any], data: dict[str, bytes]) -> None:
        """Returns when an Event says so."""
        before = sum(it["reason"] == "CertificatesNotReady" for it in self.events())
        self.kube.patch(secret, {"data": encoded(data)})
        eventually(
            lambda: sum(it["reason"] == "CertificatesNotReady" for it in self.events()) > before,
            what=f"an Event about {secret['metadata']['name']}",
        )
        self.kube.patch(secret, {"data": secret["data"]})


def encoded(data: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


@pytest.fixture
def release(kube: KubeClient, new_operator: Callable[..., OperatorProcess], tmp_path: Path) -> Iterator[Release]:
    release = Release(kube, new_operator(), tmp_path, SecretSearch())
    yield release
    for broker in release.brokers:
        if broker.running:
            broker.kill()


def test_no_object_of_a_secure_release_shows_a_secret(release: Release, settings: StoreSettings) -> None:
    kube, search = release.kube, release.search
    release.start()
    for name in ("a", "b"):
        release.start_broker(name, settings)
    for broker in release.brokers:
        broker.wait_ready()
    made = kube.create(topic(release.namespace))
    release.allow("app", resources=["topics/produce"], resourceNames=["t"])
    with release.connect(release.token_file("app")) as client:
        with client.producer("t") as producer:
            producer.send(b"x", key=b"k").result(HANG_GUARD)
        search.know_login(client, "app")
        search.fails("a consumer without its right", lambda: client.consumer("t"))
    with release.connect(release.token_file("app", audience="another")) as client:
        search.fails("a token for another audience", client.admin().whoami)
    kube.kubectl("annotate", "segment", "t-0-64-0", "-n", release.namespace, "seaweedmq.io/split=true")
    release.brokers[0].kill()
    kube.delete(release.object("Pod", "a"))
    release.damage(release.given, {"tls.crt": release.key, "tls.key": release.key[:-40]})
    document = base64.b64decode(release.secret["data"]["authorities.json"])
    misplaced = document.replace(b'"signing"', json.dumps(release.key.decode()).encode())
    release.damage(release.secret, {"authorities.json": misplaced})
    expected = {"CertificatesNotReady", "Manual", "Failover"}
    eventually(lambda: expected <= {it["reason"] for it in release.events()}, what="Events")
    look_everywhere(release)
    assert kube.get(made)["status"]["conditions"], "there is a status"
    assert not search.found()


def look_everywhere(release: Release) -> None:
    search = release.search
    for api, kind in KINDS:
        for found in release.kube.list(api, kind, release.namespace):
            search.see(f"{api} {kind} {found['metadata']['name']}", json.dumps(found))
    search.see("log of the operator", release.operator.log.read_bytes())
    for broker in release.brokers:
        search.see(f"log of {broker.name}", broker.log.read_bytes())
    for path in ("/", "/overview.json", "/metrics", "/readyz"):
        with urllib.request.urlopen(f"http://{release.operator.http}{path}", timeout=HANG_GUARD) as answer:
            search.see(f"page {path}", answer.read())
