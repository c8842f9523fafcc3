"""Checks the published CRD schemas for every field that this operator reads and writes.

The API server silently drops fields of a spec or status that an older definition lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from smq_operator.kube.client.kinds import Resource
from smq_storage.topic_manifests.fields import SpecModel

OPENAPI_PATH = "/openapi/v3/apis/seaweedmq.io/v1alpha1"
SEGMENT_SPEC_FIELDS = ("topic", "number", "range", "durability", "predecessors", "replicas")
SEGMENT_STATUS_FIELDS = (
    *("phase", "brokers", "successors", "endOffset", "bytes", "openedBecause", "sealedBecause", "openedAt", "sealedAt"),
    *("lost.start", "lost.stop", "lost.atLeast", "conditions", "schemaVersion"),
)
TOPIC_STATUS_FIELDS = (
    *("observedGeneration", "conditions", "schemaVersion", "segments.open", "segments.sealed", "brokers"),
    *("lastDecision.time", "lastDecision.action", "lastDecision.segments", "lastDecision.reason"),
)


def required_fields() -> dict[str, list[str]]:
    """The paths of fields by kind."""
    return {
        "Topic": [*(f"spec.{path}" for path in _paths(SpecModel)), *(f"status.{path}" for path in TOPIC_STATUS_FIELDS)],
        "Segment": [f"spec.{path}" for path in SEGMENT_SPEC_FIELDS]
        + [f"status.{path}" for path in SEGMENT_STATUS_FIELDS],
    }


def missing(published: Resource) -> dict[str, list[str]]:
    """The fields that the published schemas lack, by kind. Kinds that are not published are left out."""
    schemas = {}
    for schema in published.get("components", {}).get("schemas", {}).values():
        for named in schema.get("x-kubernetes-group-version-kind") or ():
            schemas[named["kind"]] = schema
    found = {
        kind: [path for path in paths if not _has_field(schemas[kind], path.split("."))]
        for kind, paths in required_fields().items()
        if kind in schemas
    }
    return {kind: paths for kind, paths in found.items() if paths}


def _has_field(schema: Mapping[str, Any], path: list[str]) -> bool:
    for name in path:
        properties = schema.get("properties")
        if properties is None:
            return bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        if name not in properties:
            return False
        schema = properties[name]
    return True


def _paths(model: type[BaseModel]) -> Iterator[str]:
    """The paths of all fields by their names in a manifest, nested ones too, but not those of list items."""
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
