"""Proofs from the API server that an incarnation of a broker has terminated.

An incarnation says which Pod it ran in and when it started (``smq_core.model.incarnation_ids``), so nothing need be
remembered about it. An unreachable broker is not proved gone, nor is one whose Pod is missing from a cache that may be
stale. A container that terminates is restarted in its Pod. The next process finds the journal there, so the journal is
gone only with the Pod, or if the Pod has none. These are proofs:

- the Pod was deleted, and its last status says that the broker's container had terminated, or that it never ran;
- the Pod exists, and its status says that the container in which this incarnation ran has terminated (the one proof
  that leaves the journal);
- the Node of the Pod has the taint ``node.kubernetes.io/out-of-service``: an administrator says that it is shut down;
- the Node of the Pod was removed from the cluster and has stayed away for ``node_grace_us``, and the incarnation has
  not reported in that time. A Node that registers again is no removed Node any more, so the other rules decide;
- the Pod was deleted, but nobody saw its containers terminate, and its Node has been Ready for ``node_grace_us`` since
  then. Nobody sees it if the Pod is deleted by force, or if no operator is watching. A Ready Node stops what the API
  server no longer has. While the Node is not Ready, the process may still run, cut off with its Node, so there is
  no proof.

Only the broker's own container counts: a sidecar may end and start again beside it. Nothing proves that an incarnation
has terminated while it reports: a status can be wrong, and its journal and memory would be given up for nothing.

The last two rest on what a user did (deleted a Pod by force, removed a Node). Only a list of Nodes that was requested
after the grace confirms them. If this process was paused, or a watch was cut off, a cache was not updated and shows the
Nodes as they were.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from smq_core.model.incarnation_ids import PodIncarnation, parse_incarnation
from smq_operator.kube.client.kinds import NODES, PODS, Key, Kind, Resource, key_of
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.settings import COMPONENT_LABEL
from smq_operator.platform_port import TerminationProof

# A Node's clock may have been set back by up to this while a container was restarted.
CLOCK_MARGIN_SECONDS = 60
# How often a proof that waits for a newer list of Nodes requests one.
LIST_INTERVAL_US = 10_000_000
MAX_REMEMBERED = 20_000
JOURNAL_VARIABLE = "SMQ_JOURNAL"
BROKER = (COMPONENT_LABEL, "broker")
# The name of the broker's container in its Pod, as the chart has it.
BROKER_CONTAINER = "broker"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class _DeletedPod:
    """A Pod that was deleted. ``at`` is a time of the leader's clock."""

    name: str
    node: str
    terminated: bool
    at: int


class TerminationTracker:
    """See the module's docstring. ``request_list`` requests a new list of Pods.

    A Node that has failed looks Ready for less than ``node_grace_us`` (microseconds).
    """

    def __init__(
        self, cache: ResourceCache, clock: Callable[[], int], request_list: Callable[[], None], node_grace_us: int
    ) -> None:
        self._cache = cache
        self._now = clock
        self._request_list = request_list
        self._node_grace_us = node_grace_us
        self._uids: dict[Key, str] = {}
        self._pods_by_uid: dict[str, Resource] = {}
        self._deleted_pods: OrderedDict[str, _DeletedPod] = OrderedDict()
        self._missing_since: OrderedDict[str, int] = OrderedDict()
        """Pods that are not in the cache, with the time since when they are missing."""
        self._ready_since: dict[str, int | None] = {}
        self._removed_nodes: dict[str, int] = {}
        """Nodes that are not in the cache, with the time since when they are missing."""
        self._last_reporting: OrderedDict[str, int] = OrderedDict()
        """Incarnations whose Pod or Node is gone, and when they last counted as reporting."""
        self._list_requested_at: int | None = None
        cache.on_change(self._on_resource_change)

    def proof(self, incarnation: str, reporting: bool = False) -> TerminationProof | None:
        """The proof that this incarnation has terminated, or None.

        ``reporting``: whether its reports still arrive.
        """
        start = parse_incarnation(incarnation)
        if start is None:
            return None
        if reporting:
            self._last_reporting.pop(incarnation, None)
            self._last_reporting[incarnation] = self._now()
            while len(self._last_reporting) > MAX_REMEMBERED:
                self._last_reporting.popitem(last=False)
            return None
        last_reporting = self._last_reporting.get(incarnation, 0)
        pod = self._pods_by_uid.get(start.pod)
        if pod is not None:
            ended = _final_end(pod) or self._proof_from_node(pod["spec"].get("nodeName", ""), pod, last_reporting)
            return TerminationProof(ended) if ended else _ended_container(pod, start)
        deleted_pod = self._deleted_pods.get(start.pod) or self._missing(start.pod)
        if deleted_pod is None:
            return None
        gone = self._proof_from_deleted_pod(deleted_pod, last_reporting)
        return TerminationProof(gone) if gone else None

    # ---- what is known

    def _on_resource_change(self, kind: Kind, key: Key, resource: Resource | None) -> None:
        if kind is PODS:
            uid = resource["metadata"]["uid"] if resource is not None else None
            old = self._uids.pop(key, None)
            if old is not None and old != uid:
                self._record_deletion(old)
            if resource is not None and uid is not None and _is_broker(resource):
                self._uids[key], self._pods_by_uid[uid] = uid, resource
                self._missing_since.pop(uid, None)
        elif kind is NODES:
            self._node(key[1], resource)

    def _record_deletion(self, uid: str) -> None:
        pod = self._pods_by_uid.pop(uid)
        node = pod["spec"].get("nodeName", "")
        self._deleted_pods[uid] = _DeletedPod(
            key_of(pod)[1], node, not node or _containers_terminated(pod), self._now()
        )
        while len(self._deleted_pods) > MAX_REMEMBERED:
            self._deleted_pods.popitem(last=False)

    def _node(self, name: str, node: Resource | None) -> None:
        if node is None:
            self._removed_nodes[name] = self._now()
            self._ready_since.pop(name, None)
            return
        self._removed_nodes.pop(name, None)
        if not _is_ready(node):
            self._ready_since[name] = None
        elif self._ready_since.get(name) is None:
            self._ready_since[name] = self._now()

    def _missing(self, uid: str) -> _DeletedPod | None:
        """The Pod as deleted, if a list that was requested after the first call of this does not have it."""
        since = self._missing_since.get(uid)
        if since is None:
            self._missing_since[uid] = self._now()
            while len(self._missing_since) > MAX_REMEMBERED:
                self._missing_since.popitem(last=False)
            self._request_list()
            return None
        listed = self._cache.listed_at.get(PODS)
        if listed is None or listed <= since:
            return None
        return _DeletedPod("", "", False, since)

    # ---- what it proves

    def _proof_from_node(self, node: str, pod: Resource, last_reporting: int) -> str | None:
        if self._is_out_of_service(node):
            return f"the Node {node} of its Pod {key_of(pod)[1]} has the taint {OUT_OF_SERVICE}"
        if not node or not self._is_removed(node, last_reporting):
            return None
        return f"the Node {node} of its Pod {key_of(pod)[1]} was removed"

    def _is_out_of_service(self, node: str) -> bool:
        """Whether an administrator says that the Node is shut down, and that its volumes may be used elsewhere."""
        found = self._cache.nodes.get(("", node))
        taints = (found["spec"].get("taints") or ()) if found is not None and "spec" in found else ()
        return any(taint.get("key") == OUT_OF_SERVICE for taint in taints)

    def _is_removed(self, node: str, since: int) -> bool:
        """Whether the Node has been missing for the grace, counted from ``since`` at the earliest, and still is."""
        if NODES not in self._cache.synced or ("", node) in self._cache.nodes:
            return False
        missing_since = self._removed_nodes.setdefault(node, self._now())
        return self._is_confirmed(max(missing_since, since))

    def _is_confirmed(self, since: int) -> bool:
        """Whether the grace after ``since`` is over, and Nodes were listed after it. Otherwise requests a list."""
        now, due = self._now(), since + self._node_grace_us
        if now < due:
            return False
        if self._cache.listed_at.get(NODES, 0) >= due:
            return True
        if self._list_requested_at is None or now - self._list_requested_at >= LIST_INTERVAL_US:
            self._list_requested_at = now
            self._request_list()
        return False

    def _proof_from_deleted_pod(self, pod: _DeletedPod, last_reporting: int) -> str | None:
        description = f"its Pod {pod.name} was deleted" if pod.name else "its Pod was deleted"
        if pod.terminated:
            return f"{description}, and its containers had terminated"
        if self._is_out_of_service(pod.node):
            return f"{description}, and its Node {pod.node} has the taint {OUT_OF_SERVICE}"
        if NODES not in self._cache.synced:
            return description if self._now() - pod.at >= self._node_grace_us else None
        if pod.node and pod.node not in self._ready_since:
            removed = self._is_removed(pod.node, max(pod.at, last_reporting))
            return f"{description}, and its Node {pod.node} was removed" if removed else None
        nodes = [self._ready_since.get(pod.node)] if pod.node else list(self._ready_since.values())
        if any(since is None for since in nodes):
            return None
        since = max([pod.at, last_reporting, *(since for since in nodes if since is not None)])
        where = f"its Node {pod.node} is" if pod.node else "all Nodes are"
        return f"{description}, and {where} Ready" if self._is_confirmed(since) else None


def _final_end(pod: Resource) -> str | None:
    """The proof that the Pod has ended and starts no container again."""
    final = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ("Succeeded", "Failed")
    return (
        f"the containers of its Pod {key_of(pod)[1]} have terminated" if final and _containers_terminated(pod) else None
    )


def _ended_container(pod: Resource, start: PodIncarnation) -> TerminationProof | None:
    """The proof that the container in which this incarnation ran has terminated."""
    for container in _broker_statuses(pod):
        now, before = container.get("state") or {}, container.get("lastState") or {}
        began = _seconds((now.get("running") or {}).get("startedAt"))
        finish_times = [_seconds((state.get("terminated") or {}).get("finishedAt")) for state in (now, before)]
        finished = max((at for at in finish_times if at is not None), default=None)
        in_earlier_container = began is None or start.at < began
        if finished is not None and start.at + CLOCK_MARGIN_SECONDS < finished and in_earlier_container:
            text = f"its container in Pod {key_of(pod)[1]} has terminated{_cause(now, before)}"
            return TerminationProof(text, journal_gone=not _has_journal(pod))
    return None


def _cause(*states: Mapping[str, Any]) -> str:
    """Why the container ended, such as `` (OOMKilled, exit code 137)``; empty if its status does not say that."""
    terminated: Mapping[str, Any] = next((state["terminated"] for state in states if state.get("terminated")), {})
    reason, code = terminated.get("reason"), terminated.get("exitCode")
    found = [reason] if reason and reason not in ("Error", "Completed") else []
    found += [f"exit code {code}"] if code is not None else []
    return f" ({', '.join(found)})" if found else ""


def _has_journal(pod: Resource) -> bool:
    """Whether a container of the Pod writes a journal, which the next process in that container finds."""
    containers = pod["spec"].get("containers") or ()
    return any(
        each["name"] == JOURNAL_VARIABLE and each.get("value") for c in containers for each in c.get("env") or ()
    )


def _is_broker(pod: Resource) -> bool:
    """A Pod whose labels were changed leaves the selection as if it were deleted, although it still runs."""
    label, value = BROKER
    return (pod["metadata"].get("labels") or {}).get(label) == value


def _containers_terminated(pod: Resource) -> bool:
    """Whether the status says that the broker's container has terminated."""
    statuses = _broker_statuses(pod)
    return bool(statuses) and all("terminated" in (each.get("state") or {}) for each in statuses)


def _broker_statuses(pod: Resource) -> list[Resource]:
    return [it for it in pod["status"].get("containerStatuses") or () if it.get("name") == BROKER_CONTAINER]


def _is_ready(node: Resource) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or ())


def _seconds(text: str | None) -> int | None:
    return int(datetime.fromisoformat(text).timestamp()) if text else None
