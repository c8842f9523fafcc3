"""What the chart renders, without a cluster."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import helm_python as helm
import pytest
import yaml

from smq_broker.runtime.settings import BrokerSettings, parse_settings
from smq_core.model.entities import SECOND
from smq_core.scaling.broker_fleet import FleetPolicy
from smq_operator.kube.broker_pools import policy_of
from smq_operator.kube.settings import NODE_GRACE_US, KubeSettings
from smq_operator.main import parse_settings as parse_operator_settings
from smq_operator.runtime.merge_settings import MergeSettings
from smq_operator.runtime.settings import advertised
from support.kube.chart import CHART, FILER, INVALID_VALUES, VALUES, given, of_kind, render, workloads

CRDS = Path(__file__).parents[3] / "crds"


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_chart_is_clean(values: dict[str, Any]) -> None:
    found = helm.lint(CHART, given(values), strict=True)
    assert found["errors"] == []
    assert [m["error"] for m in found["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize(("values", "said"), INVALID_VALUES.values(), ids=INVALID_VALUES)
def test_wrong_values_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(helm.HelmError, match=said):
        render(values)


def test_the_charts_resource_definitions_are_those_of_the_project() -> None:
    own = {path.name: path.read_text() for path in CRDS.glob("*.yaml")}
    assert own, "no CRDs found"
    copies = {path.name: path.read_text() for path in (CHART / "files").glob("*.yaml")}
    assert copies == own, "copy crds/*.yaml to charts/seaweedmq/files/"


def test_the_defaults_that_templates_use_are_the_charts_values() -> None:
    copy = CHART / "files" / "defaults" / "values.yaml"
    assert copy.read_text() == (CHART / "values.yaml").read_text(), "copy values.yaml to files/defaults/"


def test_rendered_definitions_are_complete_and_kept() -> None:
    rendered = of_kind(render({}), "CustomResourceDefinition")
    for path in CRDS.glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        found = rendered[crd["metadata"]["name"]]
        assert found["spec"] == crd["spec"]
        assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert of_kind(render({"crds": {"install": False}}), "CustomResourceDefinition") == {}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_pod_is_confined(values: dict[str, Any]) -> None:
    for name, template in workloads(render(values)).items():
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            probes = {"livenessProbe", "readinessProbe", "startupProbe"} & container.keys()
            assert len(probes) == (0 if name in ("smq-test", "smq-compaction") else 3)
            assert "memory" in container["resources"]["limits"]


def selectors(value: object) -> Iterator[dict[str, str]]:
    """Every selector in a resource."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "matchLabels" or (key == "selector" and "matchLabels" not in inner):
                yield inner
            yield from selectors(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from selectors(inner)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_everything_is_selected_by_labels_that_no_deployment_tool_overwrites(values: dict[str, Any]) -> None:
    """Argo CD, Kustomize and others set labels of app.kubernetes.io to what they like."""
    own = {"affinity", "topologySpreadConstraints", "networkPolicy"}
    if any(own & section.keys() for section in values.values() if isinstance(section, dict)) or own & values.keys():
        return  # these are selectors of the user
    resources = render(values)
    found = [selector for resource in resources for selector in selectors(resource)]
    assert found
    assert {key.partition("/")[0] for selector in found for key in selector} == {"seaweedmq.io"}


def test_labels_of_the_user_are_everywhere() -> None:
    values = VALUES["compacted"] | {"commonLabels": {"team": "data"}, "seaweedfs": {"enabled": True}}
    resources = render(values)
    assert all(labelled["metadata"]["labels"]["team"] == "data" for labelled in resources)
    assert all(pod["metadata"]["labels"]["team"] == "data" for pod in workloads(resources).values())


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_selectors_find_the_pods_they_are_for_and_no_others(values: dict[str, Any]) -> None:
    resources = render(values)
    pods = {n: d["spec"]["template"]["metadata"]["labels"] for n, d in of_kind(resources, "Deployment").items()}
    for name, deployment in of_kind(resources, "Deployment").items():
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert [n for n, labels in pods.items() if selector.items() <= labels.items()] == [name]
    brokers = {name for name in pods if "broker" in name}
    proxies = {name for name in pods if "proxy" in name}
    for name, budget in of_kind(resources, "PodDisruptionBudget").items():
        selector = budget["spec"]["selector"]["matchLabels"]
        found = {n for n, labels in pods.items() if selector.items() <= labels.items()}
        assert found == (brokers if "broker" in name else proxies if "proxy" in name else {"smq-operator"})


def broker_pod(values: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = of_kind(render(values), "Deployment")["smq-broker"]["spec"]["template"]["spec"]
    return spec


def broker_environment(values: dict[str, Any], pod_ip: str = "10.1.2.3") -> dict[str, str]:
    environment = {}
    for entry in broker_pod(values)["containers"][0]["env"]:
        source = entry.get("valueFrom", {})
        known = {"fieldRef": pod_ip, "resourceFieldRef": str(2**30), "secretKeyRef": "secret"}
        environment[entry["name"]] = entry.get("value") or known[next(iter(source))]
    return environment | {"SMQ_POD_UID": str(uuid.uuid4())}


def broker_settings(values: dict[str, Any], pod_ip: str = "10.1.2.3") -> BrokerSettings:
    """What a broker reads from the variables of its container."""
    with mock.patch.dict(os.environ, broker_environment(values, pod_ip)):
        return parse_settings([])


def test_a_brokers_environment_is_one_that_a_broker_understands() -> None:
    settings, pod = broker_settings(VALUES["amazon"]), broker_pod(VALUES["amazon"])
    environment = broker_environment(VALUES["amazon"])
    assert settings.leader == ("smq.default.svc:7070",)
    assert settings.advertised(7071) == "10.1.2.3:7071"
    assert settings.filer_url == "s3://smq/prod"
    assert settings.leader_timeout <= settings.grace < pod["terminationGracePeriodSeconds"]
    assert settings.leader_timeout >= NODE_GRACE_US / SECOND, "sooner, it would have to be proved gone for as long"
    unknown = {n.removeprefix("SMQ_").lower() for n in environment if n.startswith("SMQ_")} - settings.model_fields_set
    assert not unknown, "a variable that no setting reads"


def journal_of(deployment: dict[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
    """Where the broker keeps its journal, and the volume that is mounted there."""
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    path = next((entry["value"] for entry in container["env"] if entry["name"] == "SMQ_JOURNAL"), None)
    mounted = next((mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == path), None)
    return path, next((volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == mounted), None)


@pytest.mark.parametrize(
    ("values", "size"),
    [({}, str(3 * 2**30)), ({"size": "20Gi"}, "20Gi")],
    ids=["of twice the memory", "of a given size"],
)
def test_a_broker_has_a_journal_in_its_pod(values: dict[str, Any], size: str) -> None:
    deployment = of_kind(render({"brokers": {"journal": values}}), "Deployment")["smq-broker"]
    assert journal_of(deployment) == ("/journal", {"sizeLimit": size})


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        ("8Gi", 17 * 2**30),
        ("1.5G", 3 * 10**9 + 2**30),
        ("512Mi", 2**31),
        (1000000000, 2 * 10**9 + 2**30),
        (1e9, 2 * 10**9 + 2**30),
        ("1e9", 2 * 10**9 + 2**30),
        ("15E2Mi", 3000 * 2**20 + 2**30),
        ("1000000000000m", 2 * 10**9 + 2**30),
    ],
)
def test_a_journal_may_be_as_large_as_what_the_memory_can_hold(memory: str | float, size: int) -> None:
    values = {"brokers": {"resources": {"limits": {"memory": memory}}}}
    found = journal_of(of_kind(render(values), "Deployment")["smq-broker"])
    assert found == ("/journal", {"sizeLimit": str(size)})


def test_brokers_without_journals_are_a_choice_of_each_pool() -> None:
    deployments = of_kind(render(VALUES["pools"]), "Deployment")
    assert journal_of(deployments["smq-broker-small"]) == (None, None)
    assert journal_of(deployments["smq-broker"])[0] == journal_of(deployments["smq-broker-large"])[0] == "/journal"
    assert journal_of(deployments["smq-broker-large"])[1] == {"sizeLimit": str(17 * 2**30)}
    assert journal_of(of_kind(render(VALUES["no journals"]), "Deployment")["smq-broker"]) == (None, None)


def test_an_upgrade_leaves_the_number_of_brokers_alone() -> None:
    for name, deployment in of_kind(render(VALUES["pools"]), "Deployment").items():
        assert ("replicas" in deployment["spec"]) == (name == "smq-operator")
        if name != "smq-operator":
            assert deployment["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_pools_have_their_own_bounds_and_the_common_settings() -> None:
    deployments = of_kind(render(VALUES["pools"]), "Deployment")
    bounds = {
        name: (
            d["metadata"]["annotations"]["seaweedmq.io/min-brokers"],
            d["metadata"]["annotations"]["seaweedmq.io/max-brokers"],
        )
        for name, d in deployments.items()
        if "broker" in name
    }
    assert bounds == {"smq-broker": ("2", "10"), "smq-broker-large": ("1", "4"), "smq-broker-small": ("2", "2")}
    large = deployments["smq-broker-large"]["spec"]["template"]["spec"]
    assert large["containers"][0]["resources"] == {"limits": {"memory": "8Gi"}}
    assert large["tolerations"] and "nodeSelector" not in large


def test_without_the_cluster_no_right_reaches_beyond_the_namespace() -> None:
    resources = render(VALUES["one namespace"] | VALUES["open"], namespace="queue")
    assert not of_kind(resources, "ClusterRole") and not of_kind(resources, "ClusterRoleBinding")
    closed = of_kind(render(VALUES["one namespace"], namespace="queue"), "ClusterRole").values()
    beyond = {resource for role in closed for rule in role["rules"] for resource in rule["resources"]}
    assert beyond == {"tokenreviews", "subjectaccessreviews", "brokers"}, "what no Namespace has"
    assert all(r["metadata"]["namespace"] == "queue" for r in resources if r["kind"] != "CustomResourceDefinition")
    operator = of_kind(resources, "Deployment")["smq-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert "--namespace=queue" in operator["args"]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_no_role_has_more_than_it_needs(values: dict[str, Any]) -> None:
    resources = render(values)
    for role in [*of_kind(resources, "Role").values(), *of_kind(resources, "ClusterRole").values()]:
        for rule in role["rules"]:
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            assert "pods/exec" not in rule["resources"]
            if {"secrets", "configmaps"} & set(rule["resources"]):
                security = values.get("security", {})
                assert role["kind"] == "Role" and security.get("mode") != "disabled"
                own = {"smq-security", "smq-security-roots", security.get("caSecretName", "smq-security")}
                assert rule["verbs"] == ["create"] or set(rule["resourceNames"]) <= own


def test_long_release_names_fit() -> None:
    for resource in render(VALUES["pools"], name="r" * 53):
        assert len(resource["metadata"]["name"]) <= 63 or resource["kind"].startswith("Cluster")


def test_what_a_broker_carries_is_what_the_operator_reads() -> None:
    deployment = of_kind(render(VALUES["many brokers"]), "Deployment")["smq-broker"]
    assert policy_of([{**deployment, "spec": deployment["spec"] | {"replicas": 3}}]) == FleetPolicy(
        minimum=3, maximum=1000, bytes_per_second=80 * 2**20, batches_per_second=4000.0, scale_in_after=600 * 10**6
    )


def operator_settings(values: dict[str, Any], pod_ip: str = "10.1.2.3") -> KubeSettings:
    """What the operator reads from the arguments and variables of its container."""
    pod = of_kind(render(values), "Deployment")["smq-operator"]["spec"]["template"]["spec"]
    arguments = [argument.replace("$(POD_IP)", pod_ip) for argument in pod["containers"][0]["args"]]
    environment = {entry["name"]: entry.get("value", "from-the-pod") for entry in pod["containers"][0]["env"]}
    with mock.patch.dict(os.environ, environment):
        settings = parse_operator_settings(arguments)
    assert isinstance(settings, KubeSettings)
    return settings


def test_the_operator_understands_its_arguments() -> None:
    settings = operator_settings(VALUES["one operator"])
    assert (settings.release, settings.store.url) == ("smq", FILER["url"])
    assert settings.home == settings.pod == "from-the-pod"
    assert settings.cleanup.deleted_topics_grace_us == 3600 * SECOND


@pytest.mark.parametrize(("pod_ip", "host"), [("10.1.2.3", "10.1.2.3"), ("fd00::a:3", "[fd00::a:3]")])
def test_pods_listen_over_both_families_and_advertise_the_address_of_their_pod(pod_ip: str, host: str) -> None:
    operator = operator_settings({}, pod_ip)
    assert (operator.listen, operator.http) == ("[::]:7070", "[::]:8080")
    assert advertised(operator, 7070) == f"{host}:7070"
    broker = broker_settings({"external": {"enabled": True}}, pod_ip)
    assert (broker.listen, broker.http, broker.relay) == ("[::]:7071", "[::]:8080", "[::]:7072")
    assert broker.advertised(7071) == f"{host}:7071"


def test_kafka_clients_find_brokers_by_a_service_whose_names_are_in_the_certificates() -> None:
    values = VALUES["kafka"]
    broker = broker_settings(values)
    assert broker.kafka == "[::]:9093" and broker.kafka_advertised(9093) == "10.1.2.3:9093"
    service = of_kind(render(values, namespace="queue"), "Service")["smq-kafka"]["spec"]
    assert service["ports"] == [{"name": "kafka", "port": 9093, "targetPort": "kafka"}]
    names = ("smq-kafka", "smq-kafka.default", "smq-kafka.default.svc", "smq-kafka.default.svc.cluster.local")
    assert broker.kafka_hosts() == ("10.1.2.3", *names, "kafka.example.com")
    (template,) = (it for name, it in workloads(render(values)).items() if name == "smq-broker")
    assert {"name": "kafka", "containerPort": 9093} in template["spec"]["containers"][0]["ports"]
    assert broker_settings({}).kafka == "" and "smq-kafka" not in of_kind(render({}), "Service")


def test_kafka_clients_outside_reach_a_proxy_that_has_no_filer() -> None:
    resources = render(VALUES["kafka outside"])
    deployment = of_kind(resources, "Deployment")["smq-kafka-proxy"]["spec"]
    assert deployment["replicas"] == 3
    pod = deployment["template"]["spec"]
    settings = proxy_settings(pod)
    assert settings.kafka_proxy and settings.filer_url == ""
    assert settings.leader == broker_settings({}).leader
    assert settings.kafka_advertised(9094) == "kafka.example.com:9094"
    assert settings.kafka_hosts() == ("kafka.example.com", "10.9.8.7")
    assert settings.ca_file and settings.token_file
    assert pod["serviceAccountName"] == "smq-broker", "leaders know brokers by it"
    service = of_kind(resources, "Service")["smq-kafka-proxy"]
    assert service["spec"]["type"] == "LoadBalancer" and service["metadata"]["annotations"] == {"a": "b"}
    assert service["spec"]["ports"] == [{"name": "kafka", "port": 9094, "targetPort": "kafka"}]
    assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert "smq-kafka-proxy" not in of_kind(render(VALUES["kafka"]), "Deployment")


def proxy_settings(pod: dict[str, Any]) -> BrokerSettings:
    known = {"fieldRef": str(uuid.uuid4()), "resourceFieldRef": str(2**30)}
    environment = {
        it["name"]: it.get("value") or known[next(iter(it["valueFrom"]))] for it in pod["containers"][0]["env"]
    }
    with mock.patch.dict(os.environ, environment):
        return parse_settings([])


@pytest.mark.parametrize(
    ("operator", "merge"),
    [
        ({}, MergeSettings()),
        ({"mergeFilesBelow": "64Ki"}, MergeSettings(64 * 1024)),
        ({"mergeFilesBelow": 0}, MergeSettings(0)),
        ({"mergeFilesBelow": None}, MergeSettings()),
    ],
    ids=["default", "smaller", "off", "values of a release before"],
)
def test_the_size_of_merged_files_is_what_the_operator_reads(operator: dict[str, Any], merge: MergeSettings) -> None:
    assert operator_settings({"operator": operator}).merge == merge


@pytest.mark.parametrize(
    ("operator", "grace"),
    [
        ({}, 3600 * SECOND),
        ({"supersededFilesGrace": None}, 3600 * SECOND),
        ({"supersededFilesGrace": "1h30m"}, 5400 * SECOND),
        ({"supersededFilesGrace": "unlimited"}, None),
        ({"extraArgs": ["--removed-files-grace=2h"]}, 7200 * SECOND),
    ],
    ids=["default", "values of a release before", "shorter", "kept", "as removed files"],
)
def test_how_long_superseded_files_stay_is_what_the_operator_reads(operator: dict[str, Any], grace: int | None) -> None:
    assert operator_settings({"operator": operator}).cleanup.superseded_files_grace_us == grace
