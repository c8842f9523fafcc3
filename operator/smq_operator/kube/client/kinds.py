"""The kinds of resources that the operator reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

# A resource as the API server returns it. Do not change one from the cache.
Resource: TypeAlias = dict[str, Any]
# Namespace (empty where there is none) and name.
Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Kind:
    """``plural`` is the name in paths and in RBAC rules."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the collection, of one resource, or of a part of it such as ``status``."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        inside = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return (
            f"{root}{inside}/{self.plural}" + (f"/{name}" if name else "") + (f"/{subresource}" if subresource else "")
        )


TOPICS = Kind("seaweedmq.io/v1alpha1", "Topic", "topics")
SEGMENTS = Kind("seaweedmq.io/v1alpha1", "Segment", "segments")
PODS = Kind("v1", "Pod", "pods")
NODES = Kind("v1", "Node", "nodes", namespaced=False)
EVENTS = Kind("v1", "Event", "events")
DEPLOYMENTS = Kind("apps/v1", "Deployment", "deployments")
LEASES = Kind("coordination.k8s.io/v1", "Lease", "leases")
CRDS = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
ACCESS_REVIEWS = Kind(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
SUBJECT_ACCESS_REVIEWS = Kind(
    "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
TOKEN_REVIEWS = Kind("authentication.k8s.io/v1", "TokenReview", "tokenreviews", namespaced=False)
SECRETS = Kind("v1", "Secret", "secrets")
CONFIG_MAPS = Kind("v1", "ConfigMap", "configmaps")


def key_of(resource: Mapping[str, Any]) -> Key:
    metadata = resource["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def resource_version_of(resource: Mapping[str, Any]) -> int:
    """The resourceVersion, which grows with every change; 0 if there is none that can be compared."""
    text = str(resource.get("metadata", {}).get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


def strip_managed_fields(resource: Resource) -> Resource:
    """The same object without its managed fields, which take most of its memory and are not used."""
    resource["metadata"].pop("managedFields", None)
    return resource


def rfc3339(microseconds: int) -> str:
    """``2024-01-01T00:00:00Z``, in whole seconds like the API."""
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
