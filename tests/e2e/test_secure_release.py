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

# Runs as an administrator, because it rotates the authority itself. Every wait ends with the Pod's deadline.
ROTATION = """
import itertools, os, time, smq
from concurrent.futures import ThreadPoolExecutor
from threading import Event
over, receipts, found = Event(), [], []
with smq.connect(os.environ["SMQ_LEADER"], namespace="secured", timeout=60) as client, ThreadPoolExecutor() as pool:
    admin = client.admin()
    def publish():
        with client.producer("rotated") as producer:
            while not over.wait(0.005):
                producer.send(b"%d" % len(receipts), key=b"k").result(120)
                receipts.append(time.monotonic())
    (before,) = admin.authorities().authorities
    publishing = pool.submit(publish)
    try:
        admin.rotate_authority()
        with client.consumer("rotated", start="earliest") as consumer:
            def read():
                batch = consumer.poll(0.2)
                found.extend(batch.table.column("value").to_pylist() if batch is not None else ())
            while publishing.running():
                known = admin.authorities().authorities
                if [it.phase for it in known] == ["signing"] and known[0].id != before.id:
                    break
                read()
            over.set()
            publishing.result()
            while len(found) < len(receipts):
                read()
    finally:
        over.set()
print(len(receipts), "messages, longest stall", max(b - a for a, b in itertools.pairwise(receipts)))
print("all there once and in order:", found == [b"%d" % n for n in range(len(receipts))])
"""
# Python runs it before the operator: a rotation takes minutes in place of a day.
SHORT_LIVES = """
from smq_core.access.authority_rotation import CertificateLives
from smq_operator.security.authority import authorities
CertificateLives.__init__.__kwdefaults__.update(client=30, server=120, margin=10)
authorities.STEP_SECONDS = 1.0
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


def run_program(secure: Release, name: str, account: str, program: str) -> str:
    """The output of a Pod of this ServiceAccount that runs the program, which has to succeed."""
    pod = secure.pods("operator")[0]["spec"]
    broker = secure.kube.list("v1", "Pod", SPACE, labelSelector="seaweedmq.io/component=broker")[0]["spec"]
    projected = next(volume for volume in broker["volumes"] if volume["name"] == "smq")
    container = {
        "name": name,
        "image": pod["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", program],
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
        "activeDeadlineSeconds": 800,
        "serviceAccountName": account,
        "securityContext": pod["securityContext"],
        "containers": [container],
        "volumes": [projected],
    }
    secure.kube.create(resource("Pod", name, spec=spec))
    phase = eventually(
        lambda: (
            found
            if (found := secure.kube.get(resource("Pod", name))["status"].get("phase")) in ("Succeeded", "Failed")
            else ""
        ),
        what="the program ends",
    )
    output = secure.kube.kubectl("-n", SPACE, "logs", name)
    assert phase == "Succeeded", output
    return output


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
    output = run_program(secure, "app", "app", PROGRAM)
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


def test_nothing_is_lost_while_the_authority_rotates(secure: Release) -> None:
    """A producer and a consumer run meanwhile. The release keeps its short lives, so this test is the last one."""
    secure.kube.apply(resource("ConfigMap", "short-lives", data={"sitecustomize.py": SHORT_LIVES}))
    mount = {"name": "short-lives", "mountPath": "/short-lives"}
    # Images that are built without Docker have their packages in /app/lib.
    environment = [{"name": "PYTHONPATH", "value": "/short-lives:/app/lib"}]
    volume = {"name": "short-lives", "configMap": {"name": "short-lives"}}
    changed = {"extraEnv": environment, "extraVolumes": [volume], "extraVolumeMounts": [mount]}
    secure.upgrade({"operator": changed})
    eventually(
        lambda: all("PYTHONPATH" in str(pod["spec"]) for pod in secure.pods("operator")), what="operators are replaced"
    )
    secure.wait_ready()
    secure.topic("rotated", partitions=16)
    output = run_program(secure, "rotation", f"{NAME}-admin", ROTATION)
    print(output)
    assert output.strip().endswith("all there once and in order: True")
