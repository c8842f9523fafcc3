"""The rights that the operator needs, asked for one by one, so that a message can name the one that is missing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from smq_operator.kube.api import KubeApi
from smq_operator.kube.kinds import DEPLOYMENTS, EVENTS, LEASES, PODS, REVIEWS, SEGMENTS, TOPICS, Kind
from smq_operator.kube.settings import KubeSettings


@dataclass(frozen=True, slots=True)
class Right:
    """``namespace`` is empty for all. Without an ``essential`` one the operator cannot lead."""

    verb: str
    kind: Kind
    namespace: str
    part: str = ""
    name: str = ""
    essential: bool = True

    def __str__(self) -> str:
        resource = self.kind.plural + (f"/{self.part}" if self.part else "")
        group = f' of API group "{self.kind.group}"'
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {resource}{group}{f' {self.name}' if self.name else ''} {where}"


def rights_of(kube: KubeSettings) -> list[Right]:
    led, home = kube.namespace, kube.home
    read = ("get", "list", "watch")
    return [
        *(Right(verb, TOPICS, led) for verb in read),
        *(Right(verb, SEGMENTS, led) for verb in read),
        *(Right(verb, PODS, home) for verb in read),
        *(Right(verb, DEPLOYMENTS, home) for verb in read),
        # Without this one, other releases that lead the same Topics are seen in this Namespace only.
        *([] if led else [Right("list", DEPLOYMENTS, "", essential=False)]),
        Right("create", LEASES, home),
        *(Right(verb, LEASES, home, name=kube.lease) for verb in ("get", "update")),
        Right("patch", PODS, home),
        Right("patch", DEPLOYMENTS, home, "scale", essential=False),
        Right("patch", TOPICS, led, "status", essential=False),
        *(Right(verb, SEGMENTS, led, essential=False) for verb in ("create", "patch", "delete")),
        Right("patch", SEGMENTS, led, "status", essential=False),
        *(Right(verb, EVENTS, led, essential=False) for verb in ("create", "patch")),
    ]


async def missing(api: KubeApi, kube: KubeSettings) -> list[Right]:
    """Those that this operator does not have. Raises KubeError."""
    needed = rights_of(kube)
    allowed = await asyncio.gather(*(_has(api, right) for right in needed))
    return [right for right, has in zip(needed, allowed, strict=True) if not has]


async def _has(api: KubeApi, right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.kind.group,
        "resource": right.kind.plural,
        "subresource": right.part,
        "namespace": right.namespace,
        "name": right.name,
    }
    review = {
        "apiVersion": REVIEWS.api,
        "kind": REVIEWS.kind,
        "metadata": {},
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = await api.create(REVIEWS, review)
    return bool(answer["status"]["allowed"])
