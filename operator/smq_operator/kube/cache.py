"""What the API server last said of the resources that matter, in memory. The leader reads this, never the API.

Watches feed it, and lists now and then, because a watch that was cut off may have missed a deletion. Whatever is older
than what is known is dropped, so both may come in any order. Use it on the leader's event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from smq_operator.kube.kinds import (
    DEPLOYMENTS,
    NODES,
    PODS,
    SEGMENTS,
    TOPICS,
    Key,
    Kind,
    Resource,
    key_of,
    slim,
    version_of,
)

Listener: TypeAlias = Callable[[Kind, Key, Resource | None], None]
"""Told of each change: the kind, the key, and the resource as it is now, or None when it is gone."""
REMEMBERED_DELETIONS = 20_000


class Cache:
    """See the module's docstring. The mappings are by namespace and name; resources in them must not be changed."""

    def __init__(self) -> None:
        self.topics: dict[Key, Resource] = {}
        self.segments: dict[Key, Resource] = {}
        self.pods: dict[Key, Resource] = {}
        self.deployments: dict[Key, Resource] = {}
        self.nodes: dict[Key, Resource] = {}
        self.synced: set[Kind] = set()
        """The kinds of which a whole list was taken in."""
        self.listed_at: dict[Kind, int] = {}
        """When the last such list was asked for, by the leader's clock."""
        self._kinds = {
            TOPICS: self.topics,
            SEGMENTS: self.segments,
            PODS: self.pods,
            DEPLOYMENTS: self.deployments,
            NODES: self.nodes,
        }
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._listeners: list[Listener] = []

    def on_change(self, listener: Listener) -> None:
        """``listener`` is called, on the event loop, for every change from now on."""
        self._listeners.append(listener)

    def of(self, kind: Kind) -> Mapping[Key, Resource]:
        return self._kinds[kind]

    def put(self, kind: Kind, resource: Resource) -> None:
        """The resource is, or was, so; one that is older than what is known changes nothing."""
        known, key = self._kinds[kind], key_of(resource)
        old = known.get(key)
        if resource["metadata"].get("uid") in self._deleted:
            return
        if old is not None and version_of(old) >= version_of(resource) and _uid(old) == _uid(resource):
            return
        if old is not None and _uid(old) != _uid(resource) and version_of(old) > version_of(resource):
            return  # an earlier one of that name
        known[key] = slim(resource)
        self._tell(kind, key, resource)

    def drop(self, kind: Kind, resource: Resource) -> None:
        """The resource was deleted; this is how it was at last."""
        if (self._kinds[kind].get(key_of(resource)) or {}).get("metadata", {}).get("uid") == _uid(resource):
            self.put(kind, resource)
        known, key = self._kinds[kind], key_of(resource)
        self._bury(_uid(resource))
        old = known.get(key)
        if old is not None and _uid(old) == _uid(resource):
            del known[key]
            self._tell(kind, key, None)

    def replace(
        self, kind: Kind, resources: Iterable[Resource], version: int, namespace: str = "", asked_at: int = 0
    ) -> None:
        """Takes in a whole list that was read at that version (of one namespace, when it is given)."""
        listed = {_uid(resource): resource for resource in resources}
        keys = {key_of(resource) for resource in listed.values()}
        known = self._kinds[kind]
        for key, old in list(known.items()):
            ours = not namespace or key[0] == namespace
            if ours and _uid(old) not in listed and version_of(old) <= version:
                self._bury(_uid(old))
                del known[key]
                if key not in keys:
                    self._tell(kind, key, None)
        for resource in listed.values():
            self.put(kind, resource)
        self.synced.add(kind)
        self.listed_at[kind] = asked_at

    def _bury(self, uid: str) -> None:
        """It will not come back, whatever a list that was read earlier says."""
        if uid:
            self._deleted[uid] = None
            while len(self._deleted) > REMEMBERED_DELETIONS:
                self._deleted.popitem(last=False)

    def _tell(self, kind: Kind, key: Key, resource: Resource | None) -> None:
        for listener in self._listeners:
            listener(kind, key, resource)


def _uid(resource: Resource) -> str:
    uid: str = resource["metadata"].get("uid", "")
    return uid
