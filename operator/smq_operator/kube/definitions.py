"""Does the cluster know every field that this operator reads and writes? Asked of what the API server publishes.

A definition that is older drops what it does not know without a word: a spec loses its fields, a status its news.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from smq_operator.kube.kinds import Resource
from smq_storage.manifest_model import SpecModel

PUBLISHED = "/openapi/v3/apis/seaweedmq.io/v1alpha1"
SEGMENT_SPEC = ("topic", "number", "range", "durability", "predecessors", "replicas")
SEGMENT_STATUS = (
    *("phase", "brokers", "successors", "endOffset", "bytes", "openedBecause", "sealedBecause", "openedAt", "sealedAt"),
    *("lost.from", "lost.to", "conditions"),
)
TOPIC_STATUS = (
    *("observedGeneration", "conditions", "segments.open", "segments.sealed", "brokers"),
    *("lastDecision.time", "lastDecision.action", "lastDecision.segments", "lastDecision.reason"),
)


def needed() -> dict[str, list[str]]:
    """The paths of fields by kind."""
    return {
        "Topic": [
            *(f"spec.{path}" for path in _paths(SpecModel)),
            *(f"status.{path}" for path in TOPIC_STATUS),
        ],
        "Segment": [f"spec.{path}" for path in SEGMENT_SPEC] + [f"status.{path}" for path in SEGMENT_STATUS],
    }


def missing(published: Resource) -> dict[str, list[str]]:
    """By kind: the fields that the published schemas lack. A kind that is not published at all is left out."""
    schemas = {}
    for schema in published.get("components", {}).get("schemas", {}).values():
        for named in schema.get("x-kubernetes-group-version-kind") or ():
            schemas[named["kind"]] = schema
    found = {
        kind: [path for path in paths if not _knows(schemas[kind], path.split("."))]
        for kind, paths in needed().items()
        if kind in schemas
    }
    return {kind: paths for kind, paths in found.items() if paths}


def _knows(schema: Mapping[str, Any], path: list[str]) -> bool:
    for name in path:
        properties = schema.get("properties")
        if properties is None:
            return bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        if name not in properties:
            return False
        schema = properties[name]
    return True


def _paths(model: type[BaseModel]) -> Iterator[str]:
    """Every field by its name in a manifest, and those of fields that are models themselves; no items of lists."""
    for name, field in model.model_fields.items():
        shown = field.alias or name
        inner = _model_in(field.annotation)
        if inner is None:
            yield shown
        else:
            yield from (f"{shown}.{path}" for path in _paths(inner))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel) and not _is_list(annotation):
            return each
    return None


def _is_list(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) is list
