"""The project's CRDs have every field that the operator needs, and a CRD that lacks one is detected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smq_operator.kube.preflight.crd_schemas import missing, required_fields
from support.kube.client import documents

CRDS = Path(__file__).parents[4] / "crds"


def published() -> dict[str, Any]:
    """As the API server publishes the definitions of ``crds/``."""
    schemas = {}
    for crd in documents(CRDS):
        kind = crd["spec"]["names"]["kind"]
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schemas[kind] = schema | {"x-kubernetes-group-version-kind": [{"kind": kind}]}
    return {"components": {"schemas": schemas}}


def test_the_projects_definitions_lack_nothing() -> None:
    assert missing(published()) == {}


def test_a_field_that_is_not_there_is_named() -> None:
    older = published()
    topic = older["components"]["schemas"]["Topic"]["properties"]
    del topic["spec"]["properties"]["scaling"]["properties"]["target"]["properties"]["bytesPerSecond"]
    del topic["status"]["properties"]["lastDecision"]
    assert missing(older)["Topic"] == [
        "spec.scaling.target.bytesPerSecond",
        "status.lastDecision.time",
        "status.lastDecision.action",
        "status.lastDecision.segments",
        "status.lastDecision.reason",
    ]


def test_a_kind_that_is_not_published_yet_is_no_old_one() -> None:
    assert missing({}) == {}
    assert "spec.flush.interval" in required_fields()["Topic"]
