"""The kinds of resources that the operator reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Resource: TypeAlias = dict[str, Any]
"""A resource as the API gives it; whoever gets one from the cache must not change it."""
Key: TypeAlias = tuple[str, str]
"""Namespace (empty where there is none) and name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``api`` as in ``apiVersion``; ``plural`` as in paths and in rights."""

    api: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api.rpartition("/")[0]

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """The path of the collection, of one resource, or of a part of it such as ``status``."""
        root = f"/apis/{self.api}" if "/" in self.api else f"/api/{self.api}"
        inside = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{root}{inside}/{self.plural}" + (f"/{name}" if name else "") + (f"/{part}" if part else "")


TOPICS = Kind("seaweedmq.io/v1alpha1", "Topic", "topics")
SEGMENTS = Kind("seaweedmq.io/v1alpha1", "Segment", "segments")
PODS = Kind("v1", "Pod", "pods")
NODES = Kind("v1", "Node", "nodes", namespaced=False)
EVENTS = Kind("v1", "Event", "events")
DEPLOYMENTS = Kind("apps/v1", "Deployment", "deployments")
LEASES = Kind("coordination.k8s.io/v1", "Lease", "leases")
CRDS = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
REVIEWS = Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)


def key_of(resource: Mapping[str, Any]) -> Key:
    metadata = resource["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def version_of(resource: Mapping[str, Any]) -> int:
    """The resourceVersion, which grows with every change; 0 where there is none that can be compared."""
    text = str(resource.get("metadata", {}).get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


def slim(resource: Resource) -> Resource:
    """The same object without what takes most of its memory, and is nobody's business here."""
    resource["metadata"].pop("managedFields", None)
    return resource
