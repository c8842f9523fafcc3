"""The permissions that the operator needs, reviewed one by one, so that a message can name the missing one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.kinds import (
    ACCESS_REVIEWS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    PODS,
    SEGMENTS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    TOPICS,
    Kind,
)
from smq_operator.kube.settings import KubeSettings

# By these a release with security knows its callers and their rights.
_REVIEWS = (TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One permission; ``namespace`` is empty for all. Without an ``essential`` one the operator cannot lead."""

    verb: str
    kind: Kind
    namespace: str
    subresource: str = ""
    name: str = ""
    essential: bool = True

    def __str__(self) -> str:
        resource = self.kind.plural + (f"/{self.subresource}" if self.subresource else "")
        group = f' of API group "{self.kind.group}"'
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {resource}{group}{f' {self.name}' if self.name else ''} {where}"


def required_permissions(kube: KubeSettings) -> list[Permission]:
    led_namespace, home = kube.namespace, kube.home
    read = ("get", "list", "watch")
    return [
        *(Permission(verb=verb, kind=TOPICS, namespace=led_namespace) for verb in read),
        *(Permission(verb=verb, kind=SEGMENTS, namespace=led_namespace) for verb in read),
        *(Permission(verb=verb, kind=PODS, namespace=home) for verb in read),
        *(Permission(verb=verb, kind=DEPLOYMENTS, namespace=home) for verb in read),
        # Without it, conflicting releases are found in this Namespace only.
        *([] if led_namespace else [Permission(verb="list", kind=DEPLOYMENTS, namespace="", essential=False)]),
        Permission(verb="create", kind=LEASES, namespace=home),
        *(Permission(verb=verb, kind=LEASES, namespace=home, name=kube.lease) for verb in ("get", "update")),
        Permission(verb="patch", kind=PODS, namespace=home),
        Permission(verb="patch", kind=DEPLOYMENTS, namespace=home, subresource="scale", essential=False),
        Permission(verb="patch", kind=TOPICS, namespace=led_namespace, subresource="status", essential=False),
        *(
            Permission(verb=verb, kind=SEGMENTS, namespace=led_namespace, essential=False)
            for verb in ("create", "patch", "delete")
        ),
        Permission(verb="patch", kind=SEGMENTS, namespace=led_namespace, subresource="status", essential=False),
        *(Permission(verb=verb, kind=EVENTS, namespace=led_namespace, essential=False) for verb in ("create", "patch")),
        *(Permission(verb="create", kind=it, namespace="") for it in _REVIEWS if kube.security.knows_callers),
    ]


async def missing(api: KubeApi, kube: KubeSettings) -> list[Permission]:
    """The permissions that this operator lacks. Raises KubeError."""
    needed = required_permissions(kube)
    allowed = await asyncio.gather(*(_is_allowed(api, right) for right in needed))
    return [right for right, has in zip(needed, allowed, strict=True) if not has]


async def _is_allowed(api: KubeApi, right: Permission) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.kind.group,
        "resource": right.kind.plural,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    review = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "metadata": {},
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = await api.create(ACCESS_REVIEWS, review)
    return bool(answer["status"]["allowed"])
