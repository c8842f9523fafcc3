"""A Kubernetes API in memory: as much of ``KubeApi`` as an operator uses, with versions and watches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes.client import Configuration

from smq_operator.kube.client.errors import AlreadyExists, Forbidden, NotFound, ResourceConflict
from smq_operator.kube.client.kinds import (
    ACCESS_REVIEWS,
    DEPLOYMENTS,
    EVENTS,
    Key,
    Kind,
    Resource,
    key_of,
    strip_managed_fields,
)
from support.kube.resources_in_memory import merged

# Gets the kind, ADDED, MODIFIED or DELETED, and the resource.
Watch = Callable[[Kind, str, Resource], None]


class KubeApiInMemory:
    """Resources by kind, Namespace and name. ``before_call`` is called before each call, and may raise."""

    def __init__(self, before_call: Callable[[], None] = lambda: None) -> None:
        self.resources: dict[Kind, dict[Key, Resource]] = {}
        self.watches: list[Watch] = []
        self.version = 0
        self.configuration = Configuration()
        self._before_call = before_call

    # ---- as the cluster sees it

    def put(self, kind: Kind, resource: Resource) -> Resource:
        self.version += 1
        made = copy.deepcopy(resource)
        made.setdefault("apiVersion", kind.api_version)
        made.setdefault("kind", kind.kind)
        made["metadata"].setdefault("uid", f"00000000-0000-0000-0000-{self.version:012x}")
        made["metadata"]["resourceVersion"] = str(self.version)
        there = self.resources.setdefault(kind, {})
        event = "MODIFIED" if key_of(made) in there else "ADDED"
        there[key_of(made)] = made
        self._report(kind, event, made)
        return copy.deepcopy(made)

    def remove(self, kind: Kind, key: Key) -> None:
        self.version += 1
        gone = self.resources[kind].pop(key)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._report(kind, "DELETED", gone)

    def there(self, kind: Kind) -> Mapping[Key, Resource]:
        return self.resources.get(kind, {})

    def _report(self, kind: Kind, event: str, resource: Resource) -> None:
        for watch in list(self.watches):
            watch(kind, event, copy.deepcopy(resource))

    # ---- as KubeApi

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Resource | None:
        self._before_call()
        return copy.deepcopy(self.there(kind).get((namespace, name)))

    async def list(self, kind: Kind, namespace: str = "", labels: str = "") -> tuple[list[Resource], int]:
        self._before_call()
        found = [each for key, each in self.there(kind).items() if not namespace or key[0] == namespace]
        return [strip_managed_fields(copy.deepcopy(each)) for each in found], self.version

    async def create(self, kind: Kind, body: Resource) -> Resource:
        if kind is ACCESS_REVIEWS:  # a few dozen, before anything else
            return body | {"status": {"allowed": True}}
        self._before_call()
        if key_of(body) in self.there(kind):
            raise AlreadyExists("there already")
        return self.put(kind, body)

    async def create_event(self, body: Resource) -> Resource:
        return await self.create(EVENTS, body)

    async def replace(self, kind: Kind, body: Resource) -> Resource:
        self._before_call()
        old = self._get(kind, key_of(body))
        if old["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ResourceConflict("another version")
        body["metadata"].setdefault("uid", old["metadata"]["uid"])
        return self.put(kind, body)

    async def patch(self, kind: Kind, name: str, namespace: str, change: Resource, subresource: str = "") -> Resource:
        self._before_call()
        old = self._get(kind, (namespace, name))
        version = change.get("metadata", {}).get("resourceVersion")
        if version not in (None, old["metadata"]["resourceVersion"]):
            raise ResourceConflict("another version")
        changed = merged(old, change)
        changed["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        return copy.deepcopy(old) if changed == old else self.put(kind, changed)

    async def patch_status(self, kind: Kind, name: str, namespace: str, status: Resource) -> Resource:
        return await self.patch(kind, name, namespace, {"status": status}, "status")

    async def patch_scale(self, name: str, namespace: str, replicas: int) -> Resource:
        return await self.patch(DEPLOYMENTS, name, namespace, {"spec": {"replicas": replicas}}, "scale")

    async def delete(self, kind: Kind, name: str, namespace: str = "", uid: str | None = None) -> None:
        self._before_call()
        old = self._get(kind, (namespace, name))
        if uid not in (None, old["metadata"]["uid"]):
            raise ResourceConflict("another resource")
        self.remove(kind, (namespace, name))

    async def call(self, method: str, path: str, body: Resource | None = None, **more: Any) -> Resource:
        self._before_call()
        raise Forbidden(f"{method} {path}")

    def _get(self, kind: Kind, key: Key) -> Resource:
        found = self.there(kind).get(key)
        if found is None:
            raise NotFound(f"{kind.kind} {key}")
        return found
