"""Columns and settings are changed in a manifest's text in its style, and nothing else changes."""

from __future__ import annotations

import json

import pytest

from smq_core.errors import SpecRejected
from smq_core.model.entities import Column
from smq_storage.topic_manifests.parser import parse_manifest, schema_fields
from smq_storage.topic_manifests.spec_editor import edit_spec

COLUMNS = (Column("id", "int64"), Column("delay", "float64", nullable=True), Column("gate", "uint8", nullable=True))
PATCH = {"schema": schema_fields(COLUMNS)}
HEAD = "apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\nmetadata: {name: t}\n"
FLOW = f"""{HEAD}spec:
  partitions: 64  # mine
  schema:
    - {{name: id, type: int32}}  # the key
    - {{name: note, type: string, nullable: true}}
    - {{name: delay, type: float32}}
  replicas: 2
"""
BLOCK = f"""{HEAD}spec:
  schema:
  - name: id
    type: int32
  - name: note
    type: string
    nullable: true
  - name: delay
    type: "float32"
  # what follows
  replicas: 2
"""
RESOURCE = {
    "apiVersion": "seaweedmq.io/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "t"},
    "spec": {"replicas": 2, "schema": [{"name": "id", "type": "int32"}, {"name": "delay", "type": "float32"}]},
}


@pytest.mark.parametrize("text", [FLOW, BLOCK, json.dumps(RESOURCE), json.dumps(RESOURCE, indent=2)])
def test_every_form_of_a_manifest_gets_the_columns(text: str) -> None:
    made = edit_spec(text, PATCH)
    assert parse_manifest(made).spec.schema == COLUMNS
    assert parse_manifest(made).spec.replicas == 2
    assert edit_spec(made, PATCH) == made


def test_comments_and_the_style_stay() -> None:
    assert (
        edit_spec(FLOW, PATCH)
        == f"""{HEAD}spec:
  partitions: 64  # mine
  schema:
    - {{name: id, type: int64}}  # the key
    - {{name: delay, type: float64, nullable: true}}
    - {{name: gate, type: uint8, nullable: true}}
  replicas: 2
"""
    )


def test_a_manifest_without_a_schema_is_refused() -> None:
    with pytest.raises(SpecRejected, match=r"no list spec\.schema"):
        edit_spec(f"{HEAD}spec: {{replicas: 2}}\n", PATCH)


@pytest.mark.parametrize(
    ("spec", "after"),
    [
        ("spec: {replicas: 2}  # mine\n", "spec: {replicas: 2, retention: {age: 3d}} # mine\n"),
        (
            "spec:\n  retention:\n    # why\n    age: 9d\n    bytes: 1Ti\n",
            "spec:\n  retention:\n    # why\n    age: 3d\n    bytes: 1Ti\n",
        ),
        ("", "spec:\n  retention:\n    age: 3d\n"),
    ],
)
def test_a_setting_is_set_and_all_others_stay(spec: str, after: str) -> None:
    assert edit_spec(HEAD + spec, {"retention": {"age": "3d"}}) == HEAD + after


def test_a_setting_that_is_reset_is_taken_out() -> None:
    text = f"{HEAD}spec:\n  replicas: 3  # mine\n  retention: {{age: 9d}}\n"
    assert parse_manifest(edit_spec(text, {"retention": {"age": None}, "flush": {"bytes": None}})).spec == (
        parse_manifest(f"{HEAD}spec: {{replicas: 3}}\n").spec
    )
