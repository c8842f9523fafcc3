"""A release with security: what the chart sets up, and who gets in on a real cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.release import Release
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]

NAME, SPACE = "safe", "secured"
PROGRAM = """
import os, smq
with smq.connect(os.environ["SMQ_LEADER"], namespace="secured") as client:
    print(client.admin().whoami().identity)
    with client.producer("flights") as producer:
        print(producer.send(b"x", key=b"k").result(60).offset >= 0)
    try:
        client.producer("other")
    except smq.PermissionDenied as denied:
        print(denied.access)
"""


@pytest.fixture(scope="module")
def secure(release: Release) -> Iterator[Release]:
    """The chart with ``security.mode: required``, in a Namespace with the Pod Security Standard ``restricted``.

    Of two releases for all Namespaces only one leads, so the others' one is away meanwhile.
    """
    release.uninstall()
    secure = Release(release.cluster, name=NAME, namespace=SPACE)
    secure.values |= {
        "security": {"mode": "required"},
        "external": {"enabled": False},
        "networkPolicy": {"enabled": True},
    }
    secure.values["crds"] = {"install": False}  # they stay when a release goes, and are that one's
    secure.values["brokers"] |= {"min": 2, "max": 3}
    secure.install(labels={"pod-security.kubernetes.io/enforce": "restricted"})
    yield secure
    secure.uninstall()
    release.install()


def resource(kind: str, name: str, **more: Any) -> dict[str, Any]:
    api = "rbac.authorization.k8s.io/v1" if kind.startswith("Role") else "v1"
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": SPACE}, **more}


def test_a_client_with_a_token_of_its_account_publishes_and_reads(secure: Release) -> None:
    secure.test()


def test_rbac_says_what_an_account_may_do(secure: Release) -> None:
    kube = secure.kube
    secure.topic("flights", partitions=16)
    secure.topic("other", partitions=16)
    kube.apply(resource("ServiceAccount", "app"))
    rule = {
        "apiGroups": ["seaweedmq.io"],
        "resources": ["topics/produce"],
        "resourceNames": ["flights"],
        "verbs": ["create"],
    }
    kube.apply(resource("Role", "app", rules=[rule]))
    subject = {"kind": "ServiceAccount", "name": "app", "namespace": SPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "app"}
    kube.apply(resource("RoleBinding", "app", roleRef=reference, subjects=[subject]))
    pod = secure.pods("operator")[0]["spec"]
    job = kube.list("v1", "Pod", SPACE, labelSelector="seaweedmq.io/component=broker")[0]["spec"]
    projected = next(volume for volume in job["volumes"] if volume["name"] == "smq")
    container = {
        "name": "app",
        "image": pod["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", PROGRAM],
        "env": [
            {"name": "SMQ_LEADER", "value": f"{NAME}.{SPACE}.svc:7070"},
            {"name": "SMQ_CA_FILE", "value": "/etc/smq/security/ca.crt"},
            {"name": "SMQ_TOKEN_FILE", "value": "/etc/smq/security/token"},
        ],
        "securityContext": pod["containers"][0]["securityContext"],
        "volumeMounts": [{"name": "smq", "mountPath": "/etc/smq/security"}],
    }
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": "app",
        "securityContext": pod["securityContext"],
        "containers": [container],
        "volumes": [projected],
    }
    kube.create(resource("Pod", "app", spec=spec))
    phase = eventually(
        lambda: (
            found
            if (found := kube.get(resource("Pod", "app"))["status"].get("phase")) in ("Succeeded", "Failed")
            else ""
        ),
        what="the program ends",
    )
    output = kube.kubectl("-n", SPACE, "logs", "app")
    assert phase == "Succeeded", output
    identity, published, denied = output.strip().splitlines()[-3:]
    assert identity == f"system:serviceaccount:{SPACE}:app" and published == "True"
    assert denied == f'create topics/produce "other" in namespace "{SPACE}"'


def test_kubectl_knows_the_same_rights(secure: Release) -> None:
    who = f"--as=system:serviceaccount:{SPACE}:{NAME}-client"

    def can(name: str, right: str) -> bool:
        arguments = (
            "auth",
            "can-i",
            "create",
            f"topics.seaweedmq.io/{name}",
            f"--subresource={right}",
            "-n",
            SPACE,
            who,
        )
        try:
            return secure.kube.kubectl(*arguments).startswith("yes")
        except subprocess.CalledProcessError as error:  # it says no by its exit code, too
            assert error.stdout.startswith("no")
            return False

    assert can(f"{NAME}-test", "produce") and can(f"{NAME}-test", "consume")
    assert not can("flights", "produce") and not can(f"{NAME}-test", "administer")


def test_a_broker_that_was_killed_is_replaced(secure: Release) -> None:
    """The next Pod logs in by another token."""
    gone = secure.pods("broker")[0]["metadata"]["name"]
    secure.kill(gone)
    secure.wait_ready()
    assert gone not in {pod["metadata"]["name"] for pod in secure.pods("broker")}
    secure.test()
