"""What the chart adds when it is asked to: SeaweedFS for a trial, monitoring, the test of a release."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import helm_python as helm
import pytest

from smq_broker.runtime.settings import parse_settings
from smq_operator.main import parse_settings as parse_operator_settings
from support.kube.chart import FILER, VALUES, notes, of_kind, render, workloads

METRICS = Path(__file__).parents[3] / "docs" / "metrics.md"


def filer(pod: dict[str, Any]) -> dict[str, str]:
    named = {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0]["env"]}
    return {name: value for name, value in named.items() if name.startswith("SMQ_FILER")}


def bucket_of(pod: dict[str, Any]) -> str:
    """The bucket that the trial's SeaweedFS creates."""
    (container,) = pod["spec"]["containers"]
    bucket: str = container["lifecycle"]["postStart"]["exec"]["command"][-1]
    return bucket


def test_a_trial_needs_nothing_else_and_everybody_finds_its_store() -> None:
    resources = render(VALUES["trial"], namespace="queue")
    pods = workloads(resources)
    found = {"SMQ_FILER_URL": "s3://smq", "SMQ_FILER_ENDPOINT": "http://smq-seaweedfs.queue.svc:8333"}
    assert filer(pods["smq-broker"]) == filer(pods["smq-operator"]) == found
    with mock.patch.dict(os.environ, found):
        assert parse_settings([]).store().url == "s3://smq"
    service = of_kind(resources, "Service")["smq-seaweedfs"]["spec"]
    labels = pods["smq-seaweedfs"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items() and service["ports"][0]["port"] == 8333
    assert bucket_of(pods["smq-seaweedfs"]) == "smq"
    claim = of_kind(resources, "StatefulSet")["smq-seaweedfs"]["spec"]["volumeClaimTemplates"][0]
    assert claim["spec"]["resources"]["requests"]["storage"] == "10Gi" and "storageClassName" not in claim["spec"]


def test_a_trials_bucket_is_that_of_the_filers_address_and_its_disk_may_be_none() -> None:
    resources = render(VALUES["trial in memory"])
    pod = workloads(resources)["smq-seaweedfs"]["spec"]
    assert bucket_of({"spec": pod}) == "other" and pod["nodeSelector"] == {"disk": "ssd"}
    assert {"name": "data", "emptyDir": {}} in pod["volumes"]
    assert "volumeClaimTemplates" not in of_kind(resources, "StatefulSet")["smq-seaweedfs"]["spec"]


@pytest.mark.parametrize(
    ("ca", "source"),
    [
        ({"secretName": "ca"}, {"secret": {"secretName": "ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}),
        (
            {"configMapName": "1e3", "key": "root.pem"},
            {"configMap": {"name": "1e3", "items": [{"key": "root.pem", "path": "ca.crt"}]}},
        ),
    ],
    ids=["secret", "config map"],
)
def test_all_that_connect_to_the_filer_trust_its_authority(ca: dict[str, str], source: dict[str, Any]) -> None:
    parts = {"compaction": {"enabled": True, "topics": ["t"]}, "seaweedfs": {"enabled": True}}
    pods = workloads(render({"filer": FILER | {"ca": ca}} | parts))
    assert {"smq-operator", "smq-broker", "smq-compaction", "smq-test"} <= pods.keys()
    for name, pod in pods.items():
        (container,) = pod["spec"]["containers"]
        file = next((v["value"] for v in container["env"] if v["name"] == "SSL_CERT_FILE"), None)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        if name == "smq-seaweedfs":
            assert file is None and "filer-ca" not in mounts
        else:
            assert file == f"{mounts['filer-ca']}/ca.crt"
            assert {"name": "filer-ca"} | source in pod["spec"]["volumes"]


def test_a_private_authority_has_one_source() -> None:
    with pytest.raises(helm.HelmError, match="set secretName or configMapName, not both"):
        render({"filer": FILER | {"ca": {"secretName": "a", "configMapName": "b"}}})


def test_no_store_no_compaction_and_nothing_for_prometheus_by_default() -> None:
    kinds = {resource["kind"] for resource in render({})}
    assert not kinds & {"StatefulSet", "ServiceMonitor", "PrometheusRule", "CronJob"}


def test_a_monitor_finds_the_service_that_finds_every_pod_of_the_project() -> None:
    resources = render(VALUES["watched"] | {"seaweedfs": {"enabled": True}})
    monitor = of_kind(resources, "ServiceMonitor")["smq-metrics"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [s for s in of_kind(resources, "Service").values() if wanted <= s["metadata"]["labels"].items()]
    assert [s["metadata"]["name"] for s in services] == ["smq-metrics"]
    pods = workloads(resources)
    selector = services[0]["spec"]["selector"].items()
    found = {name for name, pod in pods.items() if selector <= pod["metadata"]["labels"].items()}
    assert found == {"smq-operator", "smq-broker", "smq-seaweedfs", "smq-test"}
    ported = {n for n in found if any(p["name"] == "http" for p in pods[n]["spec"]["containers"][0].get("ports", []))}
    assert ported == {"smq-operator", "smq-broker"}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_alerts_speak_of_metrics_that_exist_and_say_what_to_do() -> None:
    known = set(re.findall(r"`(smq_[a-z_]+)", METRICS.read_text()))
    rules = of_kind(render(VALUES["watched"], namespace="queue"), "PrometheusRule")["smq-metrics"]["spec"]["groups"][0]
    names = {rule["alert"] for rule in rules["rules"]}
    wanted = {"SmqNoLeader", "SmqSealBlocked", "SmqDataLoss", "SmqMemoryPressure", "SmqFilerErrors"}
    assert wanted <= names and len(names) == len(rules["rules"])
    for rule in rules["rules"]:
        used = re.findall(r"\b(smq_[a-z_]+)\{", rule["expr"])
        assert used and set(used) <= known, rule["alert"]
        assert rule["expr"].count('namespace="queue",service="smq-metrics"') == len(used), rule["alert"]
        assert all(rule["expr"].count(a) == rule["expr"].count(b) for a, b in ("()", "[]", "{}"))
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"] and len(rule["annotations"]["description"]) > 40


def test_the_test_of_a_release_is_a_program_and_runs_after_its_topic() -> None:
    resources = render({}, namespace="queue")
    pod, topic = of_kind(resources, "Pod")["smq-test"], of_kind(resources, "Topic")["smq-test"]
    weights = [int(r["metadata"]["annotations"].get("helm.sh/hook-weight", "0")) for r in (topic, pod)]
    assert weights == sorted(weights) and weights[0] < weights[1]
    assert all(r["metadata"]["annotations"]["helm.sh/hook"] == "test" for r in (topic, pod))
    container = pod["spec"]["containers"][0]
    assert "def main" in ast.unparse(ast.parse(container["args"][0]))
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert environment == {"SMQ_LEADER": "smq.queue.svc:7070", "SMQ_TOPIC": "queue/smq-test"} | CREDENTIALS


def test_a_scheduled_compaction_is_a_client_with_the_filers_credentials() -> None:
    resources = render(VALUES["compacted"], namespace="queue")
    job = of_kind(resources, "CronJob")["smq-compaction"]["spec"]
    assert (job["schedule"], job["timeZone"], job["concurrencyPolicy"]) == ("*/30 * * * *", "Etc/UTC", "Forbid")
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    assert not pod["automountServiceAccountToken"] and pod["imagePullSecrets"] == [{"name": "registry"}]
    (container,) = pod["containers"]
    assert container["image"] == workloads(resources)["smq-operator"]["spec"]["containers"][0]["image"]
    environment = {e["name"]: e.get("value") or e["valueFrom"]["secretKeyRef"]["name"] for e in container["env"]}
    assert environment == {"SMQ_LEADER": "smq.queue.svc:7070"} | CREDENTIALS | dict.fromkeys(KEYS, "s3")


KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
# What a client of a release that knows its callers gets.
CREDENTIALS = {"SMQ_CA_FILE": "/etc/smq/security/ca.crt", "SMQ_TOKEN_FILE": "/etc/smq/security/token"}


def test_every_pod_that_reaches_the_filer_has_its_credentials_and_its_role() -> None:
    """A Secret without a token is one of a fixed key."""
    resources = render(VALUES["compacted"] | {"serviceAccount": {"annotations": {"role": "smq"}}})
    accounts = of_kind(resources, "ServiceAccount")
    for name, pod in workloads(resources).items():
        (container,) = pod["spec"]["containers"]
        given = {e["name"]: e["valueFrom"]["secretKeyRef"] for e in container["env"] if e["name"] in KEYS}
        assert {key: ref["name"] for key, ref in given.items()} == dict.fromkeys(KEYS, "s3"), name
        assert {key for key, ref in given.items() if ref.get("optional")} == {"AWS_SESSION_TOKEN"}, name
        assert accounts[pod["spec"]["serviceAccountName"]]["metadata"]["annotations"] == {"role": "smq"}, name


def test_a_compaction_goes_on_after_a_topic_that_fails_and_fails_itself(tmp_path: Path) -> None:
    (container,) = workloads(render(VALUES["compacted"], namespace="queue"))["smq-compaction"]["spec"]["containers"]
    smq = tmp_path / "smq"
    smq.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncase "$3" in queue/*) exit 1; esac\n')
    smq.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([*container["command"], *container["args"]], env=path, check=False)
    called = (tmp_path / "calls").read_text().splitlines()
    assert called == ["topic compact queue/flights --target=32Mi", "topic compact travel/delays --target=32Mi"]
    assert done.returncode == 1
    done = subprocess.run([*container["command"], "travel/delays"], env=path, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("mode", ["disabled", "permissive", "required"])
def test_all_processes_of_a_release_have_its_mode(mode: str) -> None:
    resources = render({"security": {"mode": mode}, "external": {"enabled": True}}, namespace="queue")
    operator = of_kind(resources, "Deployment")["smq-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert f"--security={mode}" in operator["args"]
    broker = of_kind(resources, "Deployment")["smq-broker"]["spec"]["template"]["spec"]["containers"][0]
    environment = {entry["name"]: entry.get("value") for entry in broker["env"]}
    assert (environment.get("SMQ_PERMISSIVE") == "true") is (mode == "permissive")
    assert (environment.items() >= CREDENTIALS.items()) is (mode != "disabled")
    for name in ("smq", "smq-external"):
        metadata = of_kind(resources, "Service")[name]["metadata"]
        audience = metadata.get("annotations", {}).get("seaweedmq.io/token-audience")
        assert audience == ("smq.queue.smq" if mode != "disabled" else None)
    assert ("smq-admin" in of_kind(resources, "ServiceAccount")) is (mode != "disabled")


def test_a_release_is_closed_unless_its_values_say_otherwise() -> None:
    operator = of_kind(render({}), "Deployment")["smq-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert "--security=required" in operator["args"]


@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_the_page_of_a_closed_release_is_for_port_forward_only(mode: str) -> None:
    resources = render({"security": {"mode": mode}})
    operator = of_kind(resources, "Deployment")["smq-operator"]["spec"]["template"]["spec"]["containers"][0]
    environment = {entry["name"]: entry.get("value", "queue") for entry in operator["env"]}
    with mock.patch.dict(os.environ, environment, clear=True):
        settings = parse_operator_settings(operator["args"])
    assert settings.http == "[::]:8080", "probes and Prometheus reach it"
    assert settings.page_at_loopback_only is (mode == "required")


def test_the_notes_warn_of_a_release_that_lets_everybody_in() -> None:
    for mode in ("disabled", "permissive"):
        assert f"WARNING: security.mode is {mode}." in notes({"security": {"mode": mode}})
    assert "WARNING" not in notes({}) and "smq-security-roots (SMQ_CA_FILE)" in notes({})
