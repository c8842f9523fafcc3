"""The latest known state of the resources, in memory. The leader reads this cache, never the API server.

Watches and lists feed it, because a watch that was cut off may have missed a deletion. They may come in any order,
because the cache drops what is older than what it has. Use it on the leader's event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from smq_operator.kube.client.kinds import (
    DEPLOYMENTS,
    NODES,
    PODS,
    SEGMENTS,
    TOPICS,
    Key,
    Kind,
    Resource,
    key_of,
    resource_version_of,
    strip_managed_fields,
)
from smq_operator.runtime.listeners import Listeners

# Called for each change with the kind, the key, and the resource as it is now, or None if it is gone.
Listener: TypeAlias = Callable[[Kind, Key, Resource | None], None]
MAX_DELETED_UIDS = 20_000


class ResourceCache:
    """See the module's docstring. The mappings are by namespace and name. Do not change resources in them."""

    def __init__(self) -> None:
        self.topics: dict[Key, Resource] = {}
        self.segments: dict[Key, Resource] = {}
        self.pods: dict[Key, Resource] = {}
        self.deployments: dict[Key, Resource] = {}
        self.nodes: dict[Key, Resource] = {}
        self.synced: set[Kind] = set()
        """The kinds that were listed completely."""
        self.listed_at: dict[Kind, int] = {}
        """When the last such list was requested, by the leader's clock."""
        self._kinds = {
            TOPICS: self.topics,
            SEGMENTS: self.segments,
            PODS: self.pods,
            DEPLOYMENTS: self.deployments,
            NODES: self.nodes,
        }
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._listeners: Listeners[Listener] = Listeners()

    def on_change(self, listener: Listener) -> None:
        """Calls ``listener``, on the event loop, for every change from now on."""
        self._listeners.add(listener)

    def of(self, kind: Kind) -> Mapping[Key, Resource]:
        return self._kinds[kind]

    def put(self, kind: Kind, resource: Resource) -> None:
        """Takes a state of the resource, unless the cache has a newer one."""
        known, key = self._kinds[kind], key_of(resource)
        old = known.get(key)
        if resource["metadata"].get("uid") in self._deleted:
            return
        if (
            old is not None
            and resource_version_of(old) >= resource_version_of(resource)
            and _uid(old) == _uid(resource)
        ):
            return
        if old is not None and _uid(old) != _uid(resource) and resource_version_of(old) > resource_version_of(resource):
            return  # an earlier resource of that name
        known[key] = strip_managed_fields(resource)
        self._notify(kind, key)

    def drop(self, kind: Kind, resource: Resource) -> None:
        """Takes the deletion of the resource, with its last state."""
        if (self._kinds[kind].get(key_of(resource)) or {}).get("metadata", {}).get("uid") == _uid(resource):
            self.put(kind, resource)
        known, key = self._kinds[kind], key_of(resource)
        self._remember_deletion(_uid(resource))
        old = known.get(key)
        if old is not None and _uid(old) == _uid(resource):
            del known[key]
            self._notify(kind, key)

    def replace(
        self, kind: Kind, resources: Iterable[Resource], version: int, namespace: str = "", requested_at: int = 0
    ) -> None:
        """Takes a complete list (of one namespace, if given) as of that version."""
        listed = {_uid(resource): resource for resource in resources}
        keys = {key_of(resource) for resource in listed.values()}
        known = self._kinds[kind]
        for key, old in list(known.items()):
            ours = not namespace or key[0] == namespace
            if ours and _uid(old) not in listed and resource_version_of(old) <= version:
                self._remember_deletion(_uid(old))
                del known[key]
                if key not in keys:
                    self._notify(kind, key)
        for resource in listed.values():
            self.put(kind, resource)
        self.synced.add(kind)
        self.listed_at[kind] = requested_at

    def _remember_deletion(self, uid: str) -> None:
        """Remembers the uid, so that an older list does not bring the resource back."""
        if uid:
            self._deleted[uid] = None
            while len(self._deleted) > MAX_DELETED_UIDS:
                self._deleted.popitem(last=False)

    def _notify(self, kind: Kind, key: Key) -> None:
        known = self._kinds[kind]
        self._listeners.notify((kind.plural, key), lambda listener: listener(kind, key, known.get(key)))


def _uid(resource: Resource) -> str:
    uid: str = resource["metadata"].get("uid", "")
    return uid
