"""What proves that an incarnation is no more, and what does not."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from smq_core.model.incarnation_ids import format_incarnation
from smq_operator.kube.client.kinds import NODES, PODS, Resource
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.settings import NODE_GRACE_US
from smq_operator.kube.termination import TerminationTracker

SECOND = 1_000_000
BEGAN = 1_700_000_000
JOURNAL: dict[str, Any] = {"containers": [{"name": "broker", "env": [{"name": "SMQ_JOURNAL", "value": "/journal"}]}]}
ENDED: dict[str, Any] = {"state": {"terminated": {"finishedAt": "2023-11-14T22:14:00Z"}}}


def at(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@dataclass
class CachedCluster:
    """A cache with Nodes and Pods in it, and a clock. ``connected``: Nodes are listed when that is requested."""

    now: int = 0
    connected: bool = True
    version: int = 0
    listed: list[int] = field(default_factory=list)
    reporting: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.cache = ResourceCache()
        self.deaths = TerminationTracker(self.cache, lambda: self.now, self._list, NODE_GRACE_US)
        self.cache.replace(PODS, [], 0)
        self.cache.replace(NODES, [], 0)

    def node(self, name: str = "n1", ready: str = "True") -> Resource:
        node = {"metadata": self._metadata(name, name), "status": {"conditions": [{"type": "Ready", "status": ready}]}}
        self.cache.put(NODES, node)
        return node

    def pod(self, uid: str = "", node: str = "n1", *, journal: bool = False, **status: Any) -> Resource:
        uid = uid or str(uuid.uuid4())
        labels = {"seaweedmq.io/component": "broker"}
        metadata = self._metadata(f"broker-{uid[:4]}", uid) | {"namespace": "ns", "labels": labels}
        spec = ({"nodeName": node} if node else {}) | (JOURNAL if journal else {})
        pod = {"metadata": metadata, "spec": spec, "status": named(status)}
        self.cache.put(PODS, pod)
        return pod

    def delete(self, pod: Resource, **status: Any) -> None:
        self.version += 1
        metadata = pod["metadata"] | {"resourceVersion": str(self.version)}
        self.cache.drop(PODS, pod | {"metadata": metadata, "status": named(status) or pod["status"]})

    def proof(self, pod: Resource) -> str | None:
        """The proof once a list that it requests has arrived."""
        self.deaths.proof(of(pod), of(pod) in self.reporting)
        found = self.deaths.proof(of(pod), of(pod) in self.reporting)
        assert found is None or found.journal_gone, "every end but that of a container takes the journal along"
        return found.text if found is not None else None

    def ended(self, incarnation: str) -> str | None:
        """The proof that its process has ended, whatever became of the journal."""
        found = self.deaths.proof(incarnation)
        return found.text if found is not None else None

    def _list(self) -> None:
        self.listed.append(self.now)
        if self.connected:
            self.cache.replace(NODES, list(self.cache.nodes.values()), self.version, requested_at=self.now)

    def _metadata(self, name: str, uid: str) -> dict[str, Any]:
        self.version += 1
        return {"name": name, "uid": uid, "resourceVersion": str(self.version)}


def named(status: dict[str, Any]) -> dict[str, Any]:
    """The status, in which a container without a name is the broker's."""
    containers = [{"name": "broker"} | it for it in status.get("containerStatuses", ())]
    return status | ({"containerStatuses": containers} if containers else {})


def of(pod: Resource, began: int = BEGAN) -> str:
    return format_incarnation(pod["metadata"]["uid"], began, "0123abcd")


def test_nothing_is_proved_of_a_pod_that_runs_or_of_a_foreign_incarnation() -> None:
    cluster = CachedCluster()
    cluster.node()
    pod = cluster.pod(phase="Running", containerStatuses=[{"state": {"running": {"startedAt": at(BEGAN)}}}])
    assert cluster.proof(pod) is None
    assert cluster.ended("5e884898da28047151d0e56f8dc62927") is None


def test_a_deleted_pod_whose_containers_had_ended_is_proof_at_once() -> None:
    cluster = CachedCluster()
    cluster.node(ready="Unknown")
    pod = cluster.pod()
    cluster.delete(pod, containerStatuses=[ENDED])
    assert "its containers had terminated" in (cluster.proof(pod) or "")


def test_a_pod_that_ends_for_good_is_proof_while_it_is_still_there() -> None:
    cluster = CachedCluster()
    cluster.node()
    assert "have terminated" in (cluster.proof(cluster.pod(phase="Failed", containerStatuses=[ENDED])) or "")
    assert cluster.proof(cluster.pod(phase="Failed", containerStatuses=[])) is None
    assert cluster.proof(cluster.pod(phase="Running", containerStatuses=[{"state": {"waiting": {}}}])) is None


def test_a_pod_that_never_had_a_node_never_ran() -> None:
    cluster = CachedCluster()
    pod = cluster.pod(node="")
    cluster.delete(pod)
    assert cluster.proof(pod)


def test_a_pod_deleted_by_force_is_no_proof_while_its_node_is_not_ready() -> None:
    cluster = CachedCluster()
    cluster.node(ready="Unknown")
    pod = cluster.pod()
    cluster.delete(pod)
    cluster.now += 3600 * SECOND
    assert cluster.proof(pod) is None
    cluster.node(ready="True")
    assert cluster.proof(pod) is None
    cluster.now += 61 * SECOND
    assert "Node n1 is Ready" in (cluster.proof(pod) or "")


def test_a_node_that_looks_ready_must_be_so_for_longer_than_a_failure_goes_unnoticed() -> None:
    cluster = CachedCluster()
    cluster.node()
    cluster.now += 1000 * SECOND
    pod = cluster.pod()
    cluster.delete(pod)
    cluster.now += 45 * SECOND
    assert cluster.proof(pod) is None
    cluster.node(ready="Unknown")
    cluster.now += 100 * SECOND
    assert cluster.proof(pod) is None


def test_a_removed_node_is_proof_for_its_pods_there_or_not() -> None:
    cluster = CachedCluster()
    node = cluster.node(ready="Unknown")
    there, gone = cluster.pod(), cluster.pod()
    cluster.delete(gone)
    assert cluster.proof(there) is None and cluster.proof(gone) is None
    cluster.cache.drop(NODES, node)
    assert cluster.proof(there) is None and cluster.proof(gone) is None, "its kubelet may live and register again"
    cluster.now += NODE_GRACE_US
    assert "Node n1" in (cluster.proof(there) or "") and "Node n1" in (cluster.proof(gone) or "")


def test_a_termination_claimed_manually_is_not_believed_while_the_broker_reports() -> None:
    cluster = CachedCluster()
    node = cluster.node()
    forced, there = cluster.pod(), cluster.pod()
    cluster.reporting |= {of(forced), of(there)}
    cluster.delete(forced)
    cluster.cache.drop(NODES, node)
    cluster.now += 1000 * SECOND
    assert cluster.proof(forced) is None and cluster.proof(there) is None
    cluster.reporting.clear()
    assert cluster.proof(forced) is None and cluster.proof(there) is None, "they reported just now"
    cluster.now += NODE_GRACE_US
    assert cluster.proof(forced) and cluster.proof(there)


def test_a_removed_node_that_registers_again_is_no_proof() -> None:
    cluster = CachedCluster()
    node = cluster.node()
    there, gone = cluster.pod(phase="Running"), cluster.pod(phase="Running")
    cluster.delete(gone)
    cluster.cache.drop(NODES, node)
    cluster.now += NODE_GRACE_US - SECOND
    cluster.version += 1
    again = node | {"metadata": cluster._metadata("n1", "registered-again")}
    cluster.cache.put(NODES, again)
    cluster.now += 10 * SECOND
    assert cluster.proof(there) is None, "its Pod is bound to a Node that lives"
    assert cluster.proof(gone) is None, "a Ready Node has the grace to stop a Pod that was deleted"
    cluster.now += NODE_GRACE_US
    assert cluster.proof(there) is None
    assert "Ready" in (cluster.proof(gone) or "")
    cluster.cache.drop(NODES, again)
    cluster.now += NODE_GRACE_US - SECOND
    assert cluster.proof(there) is None, "the grace begins anew with each removal"
    cluster.now += SECOND
    assert cluster.proof(there)


def test_a_report_during_the_grace_of_a_removed_node_begins_it_anew() -> None:
    cluster = CachedCluster()
    node, pod = cluster.node(), cluster.pod(phase="Running")
    cluster.cache.drop(NODES, node)
    cluster.now += NODE_GRACE_US - SECOND
    cluster.reporting.add(of(pod))
    assert cluster.proof(pod) is None
    cluster.reporting.clear()
    cluster.now += NODE_GRACE_US - SECOND
    assert cluster.proof(pod) is None
    cluster.now += SECOND
    assert cluster.proof(pod)


def test_a_node_that_was_removed_while_no_operator_watched_is_missing_since_the_first_check() -> None:
    cluster = CachedCluster()
    pod = cluster.pod(phase="Running")
    cluster.now += 1000 * SECOND
    assert cluster.proof(pod) is None
    cluster.now += NODE_GRACE_US
    assert "was removed" in (cluster.proof(pod) or "")


def test_a_cache_that_was_not_updated_since_the_grace_proves_nothing() -> None:
    cluster = CachedCluster(connected=False)
    node = cluster.node()
    forced = cluster.pod()
    cluster.delete(forced)
    cluster.now += 3600 * SECOND  # this process was paused, or its watch was cut off
    assert cluster.proof(forced) is None
    assert len(cluster.listed) == 1, "a list is requested, but not with every check"
    cluster.now += 10 * SECOND
    assert cluster.proof(forced) is None and len(cluster.listed) == 2
    cluster.cache.put(NODES, node | {"metadata": cluster._metadata("n1", "n1"), "status": {"conditions": []}})
    cluster.connected = True
    cluster.now += 10 * SECOND
    assert cluster.proof(forced) is None, "the list says that the Node is not Ready"
    cluster.node()
    cluster.now += NODE_GRACE_US
    assert cluster.proof(forced)


def test_a_container_that_was_restarted_is_proof_for_the_one_before() -> None:
    cluster = CachedCluster()
    cluster.node()
    crashed = {"terminated": {"finishedAt": at(BEGAN + 600)}}
    back = {"state": {"running": {"startedAt": at(BEGAN + 602)}}, "lastState": crashed}
    pod = cluster.pod(phase="Running", containerStatuses=[back])
    assert "container" in (cluster.ended(of(pod, BEGAN)) or "")
    assert cluster.ended(of(pod, BEGAN + 602)) is None
    waits = cluster.pod(phase="Running", containerStatuses=[{"state": {"waiting": {}}, "lastState": crashed}])
    assert cluster.ended(of(waits, BEGAN))
    assert cluster.ended(of(waits, BEGAN + 590)) is None, "the Node's clock may have been set back"


def test_a_restarted_sidecar_says_nothing_of_the_broker() -> None:
    cluster = CachedCluster()
    cluster.node()
    running = {"name": "broker", "state": {"running": {"startedAt": at(BEGAN)}}}
    crashed = {"terminated": {"finishedAt": at(BEGAN + 600)}}
    sidecar = {"name": "proxy", "state": {"running": {"startedAt": at(BEGAN + 602)}}, "lastState": crashed}
    pod = cluster.pod(phase="Running", containerStatuses=[sidecar, running])
    assert cluster.ended(of(pod)) is None
    ended = {"name": "broker", **ENDED_LATER}
    going = cluster.pod(phase="Running", containerStatuses=[{"name": "proxy", "state": {"running": {}}}, ended])
    going["metadata"]["deletionTimestamp"] = at(BEGAN)
    assert cluster.proof(going), "the sidecar of a Pod that ends is of no importance either"


def test_nothing_proves_the_end_of_an_incarnation_that_reports() -> None:
    cluster = CachedCluster()
    cluster.node()
    failed = cluster.pod(phase="Failed", containerStatuses=[ENDED])
    ended = cluster.pod(phase="Running", containerStatuses=[ENDED_LATER], journal=True)
    deleted = cluster.pod()
    cluster.delete(deleted, containerStatuses=[ENDED])
    for pod in (failed, ended, deleted):
        assert cluster.deaths.proof(of(pod), reporting=True) is None
        assert cluster.deaths.proof(of(pod)) is not None


def test_a_node_that_is_out_of_service_is_proof_for_its_pods_there_or_not() -> None:
    cluster = CachedCluster()
    node = cluster.node(ready="Unknown")
    there, gone, elsewhere = cluster.pod(), cluster.pod(), cluster.pod(node="n2")
    cluster.delete(gone)
    assert cluster.proof(there) is None and cluster.proof(gone) is None
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    cluster.cache.put(NODES, node | {"metadata": cluster._metadata("n1", "n1"), "spec": {"taints": [taint]}})
    assert "out-of-service" in (cluster.proof(there) or "") and "out-of-service" in (cluster.proof(gone) or "")
    assert cluster.proof(elsewhere) is None
    cluster.reporting.add(of(there))
    assert cluster.proof(there) is None, "the administrator is wrong"


def test_the_proof_of_a_container_says_why_it_ended() -> None:
    cluster = CachedCluster()
    cluster.node()
    for terminated, cause in (
        ({"reason": "OOMKilled", "exitCode": 137}, "(OOMKilled, exit code 137)"),
        ({"reason": "Error", "exitCode": 1}, "(exit code 1)"),
    ):
        crashed = {"terminated": {"finishedAt": at(BEGAN + 600), **terminated}}
        back = {"state": {"running": {"startedAt": at(BEGAN + 602)}}, "lastState": crashed}
        pod = cluster.pod(phase="Running", containerStatuses=[back])
        assert (cluster.ended(of(pod, BEGAN)) or "").endswith(f"has terminated {cause}")


def test_an_unknown_pod_is_looked_up_and_only_then_missing() -> None:
    cluster = CachedCluster()
    cluster.node()
    cluster.now = 1000 * SECOND
    incarnation = format_incarnation(str(uuid.uuid4()), BEGAN, "0123abcd")
    assert cluster.ended(incarnation) is None
    assert cluster.listed == [cluster.now]
    cluster.now += 200 * SECOND
    assert cluster.ended(incarnation) is None, "the cache may be old"
    cluster.cache.replace(PODS, [], 10**6, requested_at=cluster.now)
    assert cluster.ended(incarnation) is None, "Nodes are listed, too"
    assert "all Nodes are Ready" in (cluster.ended(incarnation) or "")
    cluster.node("n2", ready="False")
    assert cluster.ended(incarnation) is None, "it may run on there"


def test_a_pod_whose_labels_were_changed_is_not_deleted() -> None:
    cluster = CachedCluster()
    cluster.node()
    pod = cluster.pod()
    cluster.version += 1
    metadata = pod["metadata"] | {"labels": {}, "resourceVersion": str(cluster.version)}
    cluster.cache.drop(PODS, pod | {"metadata": metadata})
    cluster.now += 3600 * SECOND
    assert cluster.proof(pod) is None


ENDED_LATER: dict[str, Any] = {"state": {"terminated": {"finishedAt": at(BEGAN + 600)}}}


def test_the_journal_of_a_container_that_ended_is_in_its_pod_until_the_pod_is_gone() -> None:
    cluster = CachedCluster()
    cluster.node()
    pod = cluster.pod(phase="Running", containerStatuses=[ENDED_LATER], journal=True)
    found = cluster.deaths.proof(of(pod))
    assert found is not None and "container" in found.text and not found.journal_gone
    cluster.delete(pod)
    assert "its containers had terminated" in (cluster.proof(pod) or "")


def test_without_a_journal_the_end_of_the_container_is_all() -> None:
    cluster = CachedCluster()
    found = cluster.deaths.proof(of(cluster.pod(phase="Running", containerStatuses=[ENDED_LATER])))
    assert found is not None and found.journal_gone


def test_the_journal_of_a_container_that_ended_is_gone_with_its_node() -> None:
    cluster = CachedCluster()
    node = cluster.node()
    pod = cluster.pod(phase="Running", containerStatuses=[ENDED_LATER], journal=True)
    cluster.cache.drop(NODES, node | {"metadata": node["metadata"] | {"resourceVersion": "99"}})
    cluster.now += NODE_GRACE_US
    found = [cluster.deaths.proof(of(pod)) for _ in range(2)][-1]
    assert found is not None and "Node n1" in found.text and found.journal_gone


def test_a_pod_that_is_being_deleted_starts_no_container_that_would_find_the_journal() -> None:
    cluster = CachedCluster()
    pod = cluster.pod(phase="Running", containerStatuses=[ENDED_LATER], journal=True)
    pod["metadata"]["deletionTimestamp"] = at(BEGAN)
    found = cluster.deaths.proof(of(pod))
    assert found is not None and found.journal_gone
