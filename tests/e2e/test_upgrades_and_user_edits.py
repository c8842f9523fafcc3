"""What users change on a real cluster: an upgrade, and edits of resources that the operator owns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.load import load
from e2e.newer_chart import VERSION, newer_chart
from e2e.release import SPACE, Release, condition, unique
from smq_operator.kube.preflight.crd_schemas import OPENAPI_PATH
from support.kube.client import KubeApiError
from support.kube.operator_process import topic
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]
SPEC = {"partitions": 64, "segments": {"min": 4, "max": 8}, "flush": {"interval": "1s"}}


def test_an_upgrade_under_load_loses_nothing_and_leaves_the_number_of_brokers_alone(release: Release) -> None:
    name = unique("upgrade")
    release.topic(name, **SPEC)
    brokers = release.deployment("broker")["spec"]["replicas"]
    with load(release, name) as running:
        release.upgrade({"brokers": {"max": 6, "logLevel": "debug"}, "operator": {"logLevel": "debug"}})
        assert release.deployment("broker")["spec"]["replicas"] == brokers
        release.wait_ready()
    annotations = release.deployment("broker")["metadata"]["annotations"]
    assert annotations["seaweedmq.io/max-brokers"] == "6"
    print(f"upgraded with all Pods replaced: longest stall {running.stall:.2f} s")
    release.upgrade({})
    release.wait_ready()


def test_an_upgrade_of_the_definitions_under_load_brings_a_new_field_and_touches_no_topic(
    release: Release, tmp_path: Path
) -> None:
    kube, name = release.kube, unique("defined")
    release.topic(name, **SPEC)
    early, late = topic(SPACE, unique("early"), tier="Cold"), topic(SPACE, unique("late"), tier="Cold")
    with pytest.raises(KubeApiError, match=r'unknown field "spec\.tier"'):
        kube.create(early)
    kube.kubectl("create", "--validate=ignore", "-f", "-", stdin=json.dumps(early))
    eventually(lambda: condition(kube.get(early), "Ready") == "True", what="it is Ready without the field")
    before = topics(release)
    assert "tier" not in before[early["metadata"]["name"]]["spec"]
    pods = {pod["metadata"]["uid"] for part in ("broker", "operator") for pod in release.pods(part)}
    with load(release, name) as running:
        everything = {"brokers": {"logLevel": "debug"}, "operator": {"logLevel": "debug"}}
        release.upgrade(everything, newer_chart(tmp_path))
        eventually(lambda: '"tier"' in json.dumps(kube.request("GET", OPENAPI_PATH)), what="the field is published")
        release.topic(late["metadata"]["name"], **late["spec"])
        release.wait_ready()
        running.run_rounds()
    stall = running.stall
    assert release.deployment("broker")["metadata"]["labels"]["helm.sh/chart"] == f"seaweedmq-{VERSION}"
    assert not pods & {pod["metadata"]["uid"] for part in ("broker", "operator") for pod in release.pods(part)}
    assert kube.get(late)["spec"]["tier"] == "Cold"
    assert condition(kube.get(late), "SpecRejected") == "True", "an operator that does not know the field says so"
    assert {known: topics(release)[known] for known in before} == before
    with pytest.raises(KubeApiError, match="Unsupported value"):
        kube.patch(late, {"spec": {"tier": "Warm"}})
    eventually(lambda: condition(kube.get(late), "SealBlocked") != "True", what="no seal stays blocked")
    back = unique("defined")
    release.topic(back, **SPEC)
    with load(release, back) as running:
        release.upgrade({})
        eventually(lambda: "tier" not in kube.get(late)["spec"], what="the field is gone again")
        release.wait_ready()
        running.run_rounds()
    print(f"a new field in the definition: longest stall {stall:.2f} s, and back: {running.stall:.2f} s")
    assert {known: topics(release)[known] for known in before} == before
    eventually(lambda: condition(kube.get(late), "Ready") == "True", what="it is Ready without the field", pause=0.2)


def topics(release: Release) -> dict[str, dict[str, Any]]:
    """Each Topic's spec and uid by name, without its status."""
    kept = ("uid", "generation", "creationTimestamp", "labels", "annotations", "ownerReferences", "finalizers")
    return {
        found["metadata"]["name"]: {
            "metadata": {key: value for key, value in found["metadata"].items() if key in kept},
            "spec": found["spec"],
        }
        for found in release.kube.list("seaweedmq.io/v1alpha1", "Topic", SPACE)
    }


def test_a_deleted_or_edited_segment_resource_is_restored(release: Release) -> None:
    name = unique("drift")
    release.topic(name, **SPEC)
    segments = eventually(lambda: len(found := release.segments(name)) == 4 and found, what="four are shown")
    deleted, edited = segments[:2]
    release.kube.delete(deleted)
    release.kube.patch(edited, {"status": {"phase": "Sealed", "endOffset": 12345}}, status=True)

    def repaired() -> bool:
        now = release.kube.find(deleted)
        return bool(
            now
            and now["metadata"]["uid"] != deleted["metadata"]["uid"]
            and now.get("status") == deleted["status"]
            and release.kube.get(edited)["status"] == edited["status"]
        )

    eventually(repaired, what="both are as they were", pause=0.2)


def test_manually_added_brokers_are_drained_and_removed(release: Release) -> None:
    release.wait_ready()
    fleet = release.deployment("broker")
    wanted = fleet["spec"]["replicas"]
    name = unique("scaled")
    release.topic(name, **SPEC)
    with load(release, name):
        release.kube.kubectl("-n", SPACE, "scale", "deployment/smq-broker", f"--replicas={wanted + 1}")
        eventually(lambda: release.deployment("broker")["status"].get("readyReplicas") == wanted + 1, what="one more")
        eventually(
            lambda: release.deployment("broker")["spec"]["replicas"] == wanted,
            what="the operator restored the number of replicas",
            pause=0.5,
        )
    release.wait_ready()
