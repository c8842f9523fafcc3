"""examples/spark as an API server takes them that has the definitions of both operators of Spark."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kube.client import KubeApiError, KubeClient, documents

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "spark").glob("*/*.yaml"))


@pytest.fixture(scope="module")
def with_spark(kube: KubeClient) -> KubeClient:
    kube.install_crds(list(documents(ROOT / "tests" / "support" / "spark" / "crds")))
    return kube


def example(path: Path, namespace: str) -> dict[str, Any]:
    (resource,) = yaml.safe_load_all(path.read_text())
    resource["metadata"]["namespace"] = namespace
    return resource


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_example_is_taken_as_it_is(with_spark: KubeClient, namespace: str, path: Path) -> None:
    resource = example(path, namespace)
    made = with_spark.create(resource)
    assert contains(made["spec"], resource["spec"]), "a field was dropped"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_field_that_the_operator_does_not_know_is_refused(with_spark: KubeClient, namespace: str, path: Path) -> None:
    resource = copy.deepcopy(example(path, namespace))
    resource["spec"]["mainFile"] = "local:///app/jobs/compact.py"
    with pytest.raises(KubeApiError, match="unknown field"):
        with_spark.create(resource, dry_run=True)


def contains(whole: object, part: object) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and contains(whole[k], v) for k, v in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(contains, whole, part))
    return whole == part
