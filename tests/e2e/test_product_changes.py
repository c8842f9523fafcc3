"""What people change on a real cluster, on purpose or not: an upgrade, and hands in what is the operator's."""

from __future__ import annotations

import pytest

from e2e.load import load
from e2e.release import SPACE, Release, unique
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]
SPEC = {"partitions": 64, "segments": {"min": 4, "max": 8}, "flush": {"interval": "1s"}}


def test_an_upgrade_under_load_loses_nothing_and_leaves_the_number_of_brokers_alone(release: Release) -> None:
    name = unique("upgrade")
    release.topic(name, **SPEC)
    brokers = release.deployment("broker")["spec"]["replicas"]
    with load(release, name) as running:
        release.upgrade({"brokers": {"max": 6, "logLevel": "debug"}, "operator": {"logLevel": "debug"}})
        assert release.deployment("broker")["spec"]["replicas"] == brokers
        release.wait_ready(300)
    annotations = release.deployment("broker")["metadata"]["annotations"]
    assert annotations["seaweedmq.io/max-brokers"] == "6"
    print(f"upgraded with all Pods replaced: longest stall {running.stall:.2f} s")
    release.upgrade({})
    release.wait_ready(300)


def test_a_segment_that_somebody_deletes_or_edits_comes_back_as_it_is(release: Release) -> None:
    name = unique("drift")
    release.topic(name, **SPEC)
    segments = eventually(lambda: len(found := release.segments(name)) == 4 and found, 60, what="four are shown")
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

    eventually(repaired, 60, what="both are as they were", pause=0.2)


def test_brokers_that_somebody_adds_by_hand_are_drained_and_go_again(release: Release) -> None:
    release.wait_ready()
    fleet = release.deployment("broker")
    wanted = fleet["spec"]["replicas"]
    name = unique("scaled")
    release.topic(name, **SPEC)
    with load(release, name):
        release.kube.kubectl("-n", SPACE, "scale", "deployment/smq-broker", f"--replicas={wanted + 1}")
        eventually(
            lambda: release.deployment("broker")["status"].get("readyReplicas") == wanted + 1, 120, what="one more"
        )
        eventually(lambda: release.deployment("broker")["spec"]["replicas"] == wanted, 180, what="it went", pause=0.5)
    release.wait_ready()
