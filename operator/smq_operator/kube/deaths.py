"""What the API server proves about processes: which incarnation of a broker is certainly no more.

An incarnation says which Pod it ran in and when it began (``smq_core.starts``), so nothing need be remembered about it.
Unreachable is no proof, and neither is that a Pod is missing from a cache that may be old. These are proofs:

- the Pod was deleted, and its last status says that its containers had ended, or it never ran at all;
- the Pod is still there, and its status says that the container in which this incarnation ran has ended;
- the Node of the Pod was removed from the cluster;
- the Pod was deleted without its containers being seen to end (by force, or nobody was watching), and its Node, which
  ends what the API server does not know, has been Ready for the ``grace`` since. While the Node is not, the process may
  well run on, cut off with it, so there is no proof.

A person's word (a Pod deleted by force, a Node removed) is doubted for as long as the incarnation reports.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from smq_core.starts import Start, start_of
from smq_operator.kube.cache import Cache
from smq_operator.kube.kinds import NODES, PODS, Key, Kind, Resource, key_of

CLOCK_MARGIN = 60
"""Seconds: a Node's clock may have been set back by less while a container was restarted."""
REMEMBERED = 20_000
BROKER = ("app.kubernetes.io/component", "broker")


@dataclass(frozen=True, slots=True)
class _Departed:
    """A Pod that was deleted. ``at`` is of the leader's clock."""

    name: str
    node: str
    ended: bool
    at: int


class Deaths:
    """See the module's docstring. ``listed`` asks for a new list of Pods; ``heard`` says whether one reports.

    ``grace`` (microseconds): a Node that has failed still looks Ready for less.
    """

    def __init__(self, cache: Cache, clock: Callable[[], int], listed: Callable[[], None], grace: int) -> None:
        self._cache = cache
        self._now = clock
        self._ask_for_list = listed
        self._grace = grace
        self.heard: Callable[[str], bool] = lambda incarnation: False
        self._uids: dict[Key, str] = {}
        self._living: dict[str, Resource] = {}
        self._departed: OrderedDict[str, _Departed] = OrderedDict()
        self._unknown: OrderedDict[str, int] = OrderedDict()
        """Pods that are not in the cache, and since when that is known."""
        self._ready_since: dict[str, int | None] = {}
        self._removed: dict[str, int] = {}
        cache.on_change(self._changed)

    def proof(self, incarnation: str) -> str | None:
        """In words why this incarnation is certainly no more, or None."""
        start = start_of(incarnation)
        if start is None:
            return None
        pod = self._living.get(start.pod)
        if pod is not None:
            return self._of_living(pod, start) or self._of_removed_node(pod, incarnation)
        departed = self._departed.get(start.pod) or self._missing(start.pod)
        return None if departed is None else self._of_departed(departed, incarnation)

    # ---- what is known

    def _changed(self, kind: Kind, key: Key, resource: Resource | None) -> None:
        if kind is PODS:
            uid = resource["metadata"]["uid"] if resource is not None else None
            old = self._uids.pop(key, None)
            if old is not None and old != uid:
                self._depart(old)
            if resource is not None and uid is not None and _is_broker(resource):
                self._uids[key], self._living[uid] = uid, resource
                self._unknown.pop(uid, None)
        elif kind is NODES:
            self._node(key[1], resource)

    def _depart(self, uid: str) -> None:
        pod = self._living.pop(uid)
        node = pod["spec"].get("nodeName", "")
        self._departed[uid] = _Departed(key_of(pod)[1], node, not node or _ended(pod), self._now())
        while len(self._departed) > REMEMBERED:
            self._departed.popitem(last=False)

    def _node(self, name: str, node: Resource | None) -> None:
        if node is None:
            self._removed[name] = self._now()
            self._ready_since.pop(name, None)
            return
        self._removed.pop(name, None)
        if not _is_ready(node):
            self._ready_since[name] = None
        elif self._ready_since.get(name) is None:
            self._ready_since[name] = self._now()

    def _missing(self, uid: str) -> _Departed | None:
        """A Pod that a list does not have which was asked for after this was called for the first time."""
        since = self._unknown.get(uid)
        if since is None:
            self._unknown[uid] = self._now()
            while len(self._unknown) > REMEMBERED:
                self._unknown.popitem(last=False)
            self._ask_for_list()
            return None
        listed = self._cache.listed_at.get(PODS)
        if listed is None or listed <= since:
            return None
        return _Departed("", "", False, since)

    # ---- what it proves

    def _of_living(self, pod: Resource, start: Start) -> str | None:
        name = key_of(pod)[1]
        final = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ("Succeeded", "Failed")
        if final and _ended(pod):
            return f"the containers of its Pod {name} have ended"
        for container in pod["status"].get("containerStatuses") or ():
            now, before = container.get("state") or {}, container.get("lastState") or {}
            began = _seconds((now.get("running") or {}).get("startedAt"))
            over = [_seconds((state.get("terminated") or {}).get("finishedAt")) for state in (now, before)]
            finished = max((at for at in over if at is not None), default=None)
            in_an_earlier = began is None or start.at < began
            if finished is not None and start.at + CLOCK_MARGIN < finished and in_an_earlier:
                return f"its container in Pod {name} has ended"
        return None

    def _of_removed_node(self, pod: Resource, incarnation: str) -> str | None:
        node = pod["spec"].get("nodeName", "")
        if node in self._removed and not self.heard(incarnation):
            return f"the Node {node} of its Pod {key_of(pod)[1]} was removed"
        return None

    def _of_departed(self, pod: _Departed, incarnation: str) -> str | None:
        words = f"its Pod {pod.name} was deleted" if pod.name else "its Pod was deleted"
        if pod.ended:
            return f"{words}, and its containers had ended"
        if self.heard(incarnation):
            return None
        if NODES not in self._cache.synced:
            return words if self._now() - pod.at >= self._grace else None
        if pod.node and pod.node not in self._ready_since:
            return f"{words}, and its Node {pod.node} was removed"
        nodes = [self._ready_since.get(pod.node)] if pod.node else list(self._ready_since.values())
        if any(since is None for since in nodes):
            return None
        since = max([pod.at, *(since for since in nodes if since is not None)])
        where = f"its Node {pod.node} is" if pod.node else "all Nodes are"
        return f"{words}, and {where} Ready" if self._now() - since >= self._grace else None


def _is_broker(pod: Resource) -> bool:
    """One whose labels were changed leaves the selection as if it were deleted; it is not."""
    label, value = BROKER
    return (pod["metadata"].get("labels") or {}).get(label) == value


def _ended(pod: Resource) -> bool:
    """Every container has ended, and the status says so."""
    statuses = pod["status"].get("containerStatuses") or ()
    return bool(statuses) and all("terminated" in (each.get("state") or {}) for each in statuses)


def _is_ready(node: Resource) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or ())


def _seconds(text: str | None) -> int | None:
    return int(datetime.fromisoformat(text).timestamp()) if text else None
