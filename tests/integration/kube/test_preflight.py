"""What is wrong in a cluster is said in words, and nothing need be restarted when it is put right."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from smq_operator.kube.preflight.crd_schemas import OPENAPI_PATH
from smq_proto.v1 import admin_pb2
from support.kube.chart import of_kind, render
from support.kube.client import KubeClient, documents
from support.kube.operator_process import RELEASE, OperatorProcess, deployment_of, pod_of, topic
from support.processes.leader import manifest
from support.waiting import eventually

pytestmark = pytest.mark.integration
Operators = Callable[..., OperatorProcess]
CRDS = list(documents(Path(__file__).parents[3] / "crds"))
NAMESPACED_ROLE = {"operator": {"clusterWide": False}}


def user(api_server: Cluster, namespace: str) -> tuple[Path, dict[str, Any]]:
    """A user without any right yet: its kubeconfig, and what it is in a binding."""
    plane, name = api_server.control_plane, f"operator-{namespace}"
    kubeconfig = plane.authority.user(name, f"/CN={name}", plane.url)
    return kubeconfig, {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def grant(kube: KubeClient, namespace: str, subject: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the chart gives the operator in one Namespace; its Roles by name."""
    chart = render(NAMESPACED_ROLE, name=RELEASE, namespace=namespace)
    for role in of_kind(chart, "Role").values():
        kube.apply(role)
    for binding in of_kind(chart, "RoleBinding").values():
        kube.apply(binding | {"subjects": [subject]})
    return of_kind(chart, "Role")


def failed(operator: OperatorProcess) -> dict[str, str]:
    return {event["reason"]: event["message"] for event in operator.events("preflight.check_failed")}


def events(kube: KubeClient, operator: OperatorProcess) -> dict[str, str]:
    """By reason: the messages of all Events about the operator's Pod."""
    found: dict[str, str] = {}
    for event in kube.list("v1", "Event", operator.namespace):
        if event["involvedObject"]["name"] == operator.pod:
            found[event["reason"]] = f"{found.get(event['reason'], '')}{event['message']}\n"
    return found


@pytest.mark.slow
def test_the_charts_rights_are_enough(
    api_server: Cluster, kube: KubeClient, new_operator: Operators, namespace: str
) -> None:
    kubeconfig, subject = user(api_server, namespace)
    grant(kube, namespace, subject)
    operator = new_operator(kubeconfig).start()
    text = manifest("t").replace('"name"', f'"namespace": "{namespace}", "name"')
    assert operator.apply(text).result == admin_pb2.ApplyTopicReply.CREATED
    eventually(lambda: operator.is_labelled_leader)
    assert failed(operator) == {}
    assert "may not" not in operator.log.read_text().replace("the operator may not list nodes", "")


@pytest.mark.slow
def test_a_right_that_is_missing_is_named_until_it_is_given(
    api_server: Cluster, kube: KubeClient, new_operator: Operators, namespace: str
) -> None:
    kubeconfig, subject = user(api_server, namespace)
    operator = new_operator(kubeconfig)
    operator.launch()
    eventually(lambda: f"list topics.seaweedmq.io in namespace {namespace}" in operator.http_get("/readyz")[1])
    roles = grant(kube, namespace, subject)
    own = copy.deepcopy(roles["smq-operator"])
    own["rules"] = [rule for rule in own["rules"] if "leases" not in rule["resources"]]
    kube.replace(own)
    wanted = f'create leases of API group "coordination.k8s.io" in namespace {namespace}'
    eventually(lambda: wanted in operator.http_get("/readyz")[1])
    assert wanted in failed(operator)["PermissionsMissing"]
    eventually(lambda: wanted in events(kube, operator)["PermissionsMissing"])
    kube.replace(roles["smq-operator"])
    eventually(lambda: operator.events("leader.ready"))
    assert operator.process.poll() is None


@pytest.fixture
def definitions(kube: KubeClient) -> Iterator[KubeClient]:
    """A test may change or delete the definitions; they are put back."""
    yield kube
    kube.install_crds(CRDS)


@pytest.mark.slow
def test_definitions_that_are_missing_are_waited_for(definitions: KubeClient, new_operator: Operators) -> None:
    for crd in CRDS:
        definitions.delete(crd)
    eventually(lambda: all(definitions.find(crd) is None for crd in CRDS))
    operator = new_operator()
    operator.launch()
    eventually(lambda: "install the definitions" in operator.http_get("/readyz")[1])
    definitions.install_crds(CRDS)
    eventually(lambda: operator.events("leader.ready"))


@pytest.mark.slow
def test_an_older_definition_is_reported_and_does_not_prevent_leading(
    definitions: KubeClient, new_operator: Operators
) -> None:
    older = copy.deepcopy(next(crd for crd in CRDS if crd["spec"]["names"]["kind"] == "Topic"))
    status = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del status["lastDecision"]
    older["spec"]["versions"][0]["additionalPrinterColumns"] = []
    definitions.apply(older)
    eventually(lambda: "lastDecision" not in str(definitions.request("GET", OPENAPI_PATH)))
    operator = new_operator().start()
    said = failed(operator)["TopicCRDOutdated"]
    assert "topics.seaweedmq.io is older than this operator: it lacks status.lastDecision" in said
    assert "helm upgrade" in said
    eventually(lambda: "status.lastDecision" in events(definitions, operator)["TopicCRDOutdated"])


@pytest.mark.slow
def test_topics_are_led_while_the_definition_is_newer_than_the_operator(
    definitions: KubeClient, new_operator: Operators, namespace: str
) -> None:
    """A default of the new field is in every Topic at once, whoever wrote it when."""
    made = definitions.create(topic(namespace))
    newer = copy.deepcopy(next(crd for crd in CRDS if crd["spec"]["names"]["kind"] == "Topic"))
    spec = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["tier"] = {"type": "string", "default": "Hot"}
    definitions.apply(newer)
    eventually(lambda: definitions.get(made)["spec"].get("tier") == "Hot")
    operator = new_operator().start()

    def reported() -> str:
        conditions = definitions.get(made).get("status", {}).get("conditions", [])
        return next((c["message"] for c in conditions if c["type"] == "SpecRejected" and c["status"] == "True"), "")

    said = eventually(reported)
    assert "does not support spec.tier; it follows the rest of the spec" in said
    assert operator.events("topic.adopted")


@pytest.mark.slow
def test_an_unusable_filer_is_reported(kube: KubeClient, new_operator: Operators) -> None:
    operator = new_operator()
    operator.store = replace(operator.store, endpoint="http://127.0.0.1:9")
    operator.launch()
    eventually(lambda: "127.0.0.1:9" in operator.http_get("/readyz")[1])
    eventually(lambda: "the filer does not answer" in events(kube, operator)["NotReady"])


@pytest.mark.slow
def test_of_two_releases_in_a_namespace_the_first_one_leads(
    kube: KubeClient, new_operator: Operators, namespace: str
) -> None:
    first = kube.create(deployment_of(namespace, "operator", release="first"))
    kube.create(deployment_of(namespace, "operator"))
    kube.patch(first, {"spec": {"replicas": 0}})
    operator = new_operator()
    operator.launch()
    why = eventually(lambda: text if "release first" in (text := operator.http_get("/readyz")[1]) else "")
    assert f"release {RELEASE}" in why and "Keep one release" in why
    eventually(lambda: "release first" in events(kube, operator)["ConflictingReleases"])
    kube.delete(first)
    eventually(lambda: operator.events("leader.ready"))


@pytest.fixture
def elsewhere(kube: KubeClient, namespace: str) -> Iterator[str]:
    """Another Namespace, of another team."""
    resource = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"a-{namespace}"}}
    kube.create(resource)
    yield resource["metadata"]["name"]
    kube.delete(resource)


@pytest.mark.slow
def test_of_two_releases_that_lead_all_namespaces_the_first_one_leads(
    kube: KubeClient, new_operator: Operators, namespace: str, elsewhere: str
) -> None:
    first = kube.create(deployment_of(elsewhere, "operator", release="first"))
    kube.create(deployment_of(namespace, "operator"))
    operator = new_operator()
    operator.launch("--namespace=")
    wanted = f"release first in namespace {elsewhere}"
    why = eventually(lambda: text if wanted in (text := operator.http_get("/readyz")[1]) else "")
    assert f"{elsewhere} is older, and leads" in why
    assert "helm upgrade with operator.clusterWide=false" in why
    eventually(lambda: wanted in events(kube, operator)["ConflictingReleases"])
    kube.delete(first)
    eventually(lambda: operator.events("leader.ready"))


@pytest.mark.slow
def test_the_first_of_two_releases_keeps_leading_and_the_other_reports_the_conflict(
    kube: KubeClient, new_operator: Operators, namespace: str, elsewhere: str
) -> None:
    kube.create(deployment_of(namespace, "operator"))
    second = deployment_of(elsewhere, "operator", release="second")
    second["spec"]["template"]["spec"]["containers"][0]["args"] = ["kube", f"--namespace={elsewhere}"]
    own = kube.get(deployment_of(namespace, "operator"))["metadata"]["creationTimestamp"]
    eventually(lambda: _made_after(kube, second, own), what="it is the younger one", pause=0.3)
    operator = new_operator()
    operator.launch("--namespace=")
    eventually(lambda: operator.events("leader.ready"))
    assert "second in namespace" in failed(operator)["ConflictingReleases"]
    eventually(lambda: "second in namespace" in events(kube, operator)["ConflictingReleases"])

    def reported() -> bool:
        return any(
            event["reason"] == "ConflictingReleases" and "the other cannot see it: both lead" in event["message"]
            for event in kube.list("v1", "Event", elsewhere)
            if event["involvedObject"]["name"] == second["metadata"]["name"]
        )

    eventually(reported, what="the other release has an Event that says so")


def _made_after(kube: KubeClient, deployment: dict[str, Any], than: str) -> bool:
    """Ages are whole seconds: makes it anew until it is in a later one."""
    made = kube.find(deployment)
    if made is None:
        made = kube.create(deployment)
    if made["metadata"]["creationTimestamp"] > than:
        return True
    kube.delete(deployment)
    return False


def test_a_standby_pod_is_not_marked_whatever_its_label_says(
    operator: OperatorProcess, new_operator: Operators, kube: KubeClient, namespace: str
) -> None:
    other = new_operator()
    pod = kube.get(pod_of(other.pod, namespace, "operator"))
    kube.patch(pod, {"metadata": {"labels": {"seaweedmq.io/leader": "true"}}})
    other.launch()
    eventually(lambda: not other.is_labelled_leader and operator.is_labelled_leader)
