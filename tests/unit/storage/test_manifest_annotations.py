"""An annotation is written into a manifest in its style, and nothing else changes."""

from __future__ import annotations

import json

import pytest
import yaml

from smq_core.errors import SpecRejected
from smq_storage.topic_manifests.annotation_editor import set_annotation
from smq_storage.topic_manifests.parser import AUTOSCALING_ANNOTATION, check_annotations, parse_manifest

HEAD = "apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\n"
FORMS = {
    "flow": HEAD + "metadata: {name: t, namespace: n}  # mine\nspec: {partitions: 64}\n",
    "block": HEAD + "metadata:\n  # mine\n  name: t\n  namespace: n\nspec:\n  partitions: 64\n",
    "other annotations": HEAD + "metadata:\n  name: t\n  annotations:\n    a: b  # mine\n\nspec: {}\n",
    "annotations between braces": HEAD + "metadata: {annotations: {a: b}, name: t}  # mine\n",
    "no annotations between braces": HEAD + "metadata:\n  annotations: {}\n  name: t  # mine\n",
    "annotations without a value": HEAD + "metadata:\n  annotations:\n  name: t  # mine\n",
    "annotations that are null": HEAD + "metadata: {annotations: ~, name: t}  # mine\n",
    "something else": HEAD + f"metadata:\n  annotations:\n    {AUTOSCALING_ANNOTATION}: off  # mine\n  name: t\n",
    "quoted": HEAD + f"metadata:\n  annotations: {{\"{AUTOSCALING_ANNOTATION}\": 'active'}}  # mine\n  name: t\n",
    "an end": "---\n" + HEAD + "metadata:\n  name: t # mine\n...\n",
    "JSON": json.dumps({"apiVersion": "seaweedmq.io/v1alpha1", "kind": "Topic", "metadata": {"name": "t"}}, indent=2),
    "tight JSON": '{"apiVersion":"seaweedmq.io/v1alpha1","kind":"Topic","metadata":{"name":"t"}}',
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_manifest_can_be_paused_and_resumed(form: str) -> None:
    text = FORMS[form]

    paused = set_annotation(text, AUTOSCALING_ANNOTATION, "paused")
    resumed = set_annotation(paused, AUTOSCALING_ANNOTATION, "active")

    assert parse_manifest(paused).paused and not parse_manifest(resumed).paused
    check_annotations(parse_manifest(resumed))
    for made in (paused, resumed):
        assert parse_manifest(made).spec == parse_manifest(text).spec
        assert _without(made) == _without(text)
        assert ("# mine" in made) == ("# mine" in text)
    if "JSON" in form:
        json.loads(paused)


def test_comments_quotes_and_empty_lines_stay_where_they_were() -> None:
    text = f"""{HEAD}metadata:  # the head
  name: 't'

# what follows
spec:
  # wide
  partitions: 64  # slots
  schema:
    - name: "a"   # the first
      type: string
"""
    assert set_annotation(text, "a", "b").replace("  annotations:\n    a: b\n", "") == text


@pytest.mark.parametrize("text", ["", "a: b", "metadata: 1", "metadata: {}", "[", "- metadata"])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(SpecRejected):
        set_annotation(text, AUTOSCALING_ANNOTATION, "paused")


def test_an_unknown_pause_value_is_reported_and_pauses_nothing() -> None:
    manifest = parse_manifest(FORMS["something else"])
    assert not manifest.paused
    with pytest.raises(SpecRejected, match="must be 'paused' or 'active', not"):
        check_annotations(manifest)


@pytest.mark.parametrize("annotations", [3, ["a"], {"a": 1}, None, "x"])
def test_annotations_of_any_shape_do_not_spoil_a_topic(annotations: object) -> None:
    resource = yaml.safe_load(FORMS["flow"])
    resource["metadata"]["annotations"] = annotations
    assert not parse_manifest(json.dumps(resource)).paused


def _without(text: str) -> object:
    """All that the manifest says, but for that annotation."""
    resource = yaml.safe_load(text)
    annotations = resource["metadata"].pop("annotations", None) or {}
    annotations.pop(AUTOSCALING_ANNOTATION, None)
    return resource, annotations
