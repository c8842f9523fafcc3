"""Names that look like numbers or words of YAML, values that are missing, and charts that depend on this one."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml

from smq_operator.kube.settings import KubeSettings
from support.kube.chart import CHART, FILER, VALUES, given, merged, of_kind, render, workloads

NAMES = ["smq", "123", "1e3", "null", "true", "0x1f", "on", "a.b", "1-2", "r" * 53, f"{'9' * 39}-x", f"{'a' * 38}---b"]
# As DNS-1035 has it, which names of Services must follow.
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

# Everything that the chart can install.
MOST: dict[str, Any] = {
    "filer": {"url": "s3://smq"},
    "seaweedfs": {"enabled": True},
    "external": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "compaction": {"enabled": True, "topics": ["t"]},
    "monitoring": {part: {"enabled": True} for part in ("serviceMonitor", "alerts", "dashboard")},
}

LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
# Fields whose values are text, in whatever resource they are.
TEXT = {"name", "namespace", "image", "value", "serviceAccountName", "secretName", "storageClassName", "storage"}


def wrong_types(value: object, path: str = "") -> Iterator[str]:
    """Where something is no text that must be."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str) or (key in TEXT and not isinstance(inner, str | dict)):
                yield f"{path}.{key}: {inner!r}"
            if key in ("labels", "annotations", "matchLabels", "nodeSelector") and isinstance(inner, dict):
                yield from (f"{path}.{key}.{k}: {v!r}" for k, v in inner.items() if not isinstance(v, str))
            yield from wrong_types(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from wrong_types(inner, f"{path}[{at}]")


def check(resources: list[dict[str, Any]]) -> None:
    """No API server would refuse their names, labels and text."""
    for resource in resources:
        if resource["kind"] == "CustomResourceDefinition":
            resource["spec"] = {}
        assert list(wrong_types(resource)) == [], resource["metadata"]["name"]
        for label in resource["metadata"]["labels"].values():
            assert LABEL_VALUE.fullmatch(label), label
        if resource["kind"] in ("Service", "Topic"):
            assert DNS_LABEL.fullmatch(resource["metadata"]["name"])


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_names_of_releases_and_namespaces_may_look_like_numbers(values: dict[str, Any]) -> None:
    check(render(values, name="1e3", namespace="123"))


@pytest.mark.parametrize("name", NAMES)
def test_a_release_may_have_any_name_that_helm_takes(name: str) -> None:
    check(render(merged(VALUES["yaml words"], MOST), name=name, namespace=name.partition(".")[0]))


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_knows_the_names_of_its_release(name: str) -> None:
    settings = KubeSettings(filer_url="s3://smq", release=name, POD_NAMESPACE="home")
    resources = render({}, name=name)
    assert settings.name in of_kind(resources, "Service")
    (role,) = [role for role in of_kind(resources, "Role").values() if "leases" in str(role)]
    assert [settings.lease] in [rule.get("resourceNames") for rule in role["rules"]]
    assert role["metadata"]["name"] == settings.lease


@pytest.mark.parametrize("version", ["1.2.3+4f5e6d", f"1.0.0-{'x' * 80}", f"1.0.0-{'x' * 46}.-b"])
def test_a_chart_of_any_version_can_be_installed(tmp_path: Path, version: str) -> None:
    """Flux appends the revision with a plus."""
    shutil.copytree(CHART, tmp_path / "chart")
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (tmp_path / "chart" / "Chart.yaml").write_text(
        yaml.safe_dump(about | {"version": version, "appVersion": "0.1.0+x"})
    )
    resources = render(VALUES["compacted"], folder=tmp_path / "chart")
    for resource in resources:
        for label in resource["metadata"]["labels"].values():
            assert LABEL_VALUE.fullmatch(label), label
    for pod in workloads(resources).values():
        assert pod["spec"]["containers"][0]["image"].endswith(":0.1.0_x")


# Maps of which a user may remove single keys.
FREE = ("resources", "labels", "podSecurityContext", "containerSecurityContext")

# Values that these tests need, or that have no default.
GIVEN = ("url", "enabled", "topics")

DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def nulls(values: dict[str, Any]) -> dict[str, Any]:
    """Every value of a section as null."""
    return {
        key: nulls(value) if isinstance(value, dict) and key not in FREE else None
        for key, value in values.items()
        if key not in GIVEN
    }


@pytest.mark.parametrize("section", [key for key, value in DEFAULTS.items() if isinstance(value, dict)])
def test_values_that_are_null_are_the_defaults(section: str) -> None:
    assert render(merged(MOST, {section: nulls(DEFAULTS)[section]})) == render(MOST | {"filer": {"url": "s3://smq"}})


@pytest.mark.parametrize("empty", [{}, None], ids=["empty", "null"])
def test_sections_may_have_nothing_in_them(empty: dict[str, Any] | None) -> None:
    sections = [key for key, default in DEFAULTS.items() if not isinstance(default, bool) and key != "filer"]
    values = {key: copy.copy(empty) for key in sections if isinstance(DEFAULTS[key], dict) or empty is None}
    assert render(values) == render({})


def umbrella(folder: Path, values: dict[str, Any]) -> dict[str, str]:
    """What a chart renders that has this one as a dependency."""
    shutil.copytree(CHART, folder / "charts" / "seaweedmq")
    dependency = {"name": "seaweedmq", "version": "*", "condition": "seaweedmq.enabled"}
    about = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": [dependency]}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
    (folder / "values.yaml").write_text(yaml.safe_dump({"seaweedmq": values}))
    with helm.Chart.load(folder) as chart:
        chart.validate_schema({})
        return chart.render({}, name="shop", namespace="queue")


@pytest.mark.parametrize(
    "values",
    [
        given({"enabled": True}),
        given({"enabled": True, "external": None, "operator": {"image": None}, "brokers": None, "filer": FILER}),
    ],
    ids=["enabled", "with nulls"],
)
def test_another_chart_may_depend_on_this_one(tmp_path: Path, values: dict[str, Any]) -> None:
    rendered = "\n---\n".join(text for path, text in umbrella(tmp_path, values).items() if path.endswith(".yaml"))
    resources = [document for document in yaml.safe_load_all(rendered) if document]
    own = render({}, name="shop", namespace="queue")
    assert sorted(r["metadata"]["name"] for r in resources) == sorted(r["metadata"]["name"] for r in own)
    assert workloads(resources) == workloads(own)


def test_a_chart_that_depends_on_this_one_may_leave_it_out(tmp_path: Path) -> None:
    assert not any(text.strip() for text in umbrella(tmp_path, given({"enabled": False})).values())


def test_openshift_chooses_the_ids_of_pods() -> None:
    for pod in workloads(render(VALUES["openshift"])).values():
        assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_what_a_pod_can_be_given_reaches_every_pod() -> None:
    resources = render(VALUES["anywhere"])
    pods = workloads(resources)
    assert set(pods) == {
        *("smq-operator", "smq-broker", "smq-broker-large", "smq-seaweedfs", "smq-compaction", "smq-test")
    }
    for name, pod in pods.items():
        (container,) = pod["spec"]["containers"]
        assert pod["spec"]["tolerations"] and pod["spec"]["topologySpreadConstraints"][0]["topologyKey"] == "rack"
        assert {"name": "more", "emptyDir": {}} in pod["spec"]["volumes"]
        assert {"name": "more", "mountPath": "/more"} in container["volumeMounts"]
        assert pod["metadata"]["labels"]["team"] == "data"
        assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
        own = name == "smq-broker-large"
        assert (pod["spec"].get("priorityClassName") is None) == own
        assert ({"name": "TZ", "value": "UTC"} in container["env"]) != own
    job = of_kind(resources, "CronJob")["smq-compaction"]["spec"]["jobTemplate"]
    assert job["metadata"]["annotations"] == {"a": "b"}
    assert pods["smq-test"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}


def test_services_follow_the_address_families_of_the_cluster() -> None:
    services = of_kind(render(VALUES["dual stack"]), "Service")
    assert set(services) == {"smq", "smq-external", "smq-metrics", "smq-seaweedfs"}
    assert {service["spec"]["ipFamilyPolicy"] for service in services.values()} == {"PreferDualStack"}
    assert services["smq-external"]["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8", "fd00::/8"]
    assert services["smq"]["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert "ipFamilyPolicy" not in of_kind(render({}), "Service")["smq"]["spec"]
