"""Columns are changed in a manifest's text in its style, and nothing else changes."""

from __future__ import annotations

import json

import pytest

from smq_core.errors import SpecRejected
from smq_core.model.entities import Column
from smq_storage.topic_manifests.parser import parse_manifest
from smq_storage.topic_manifests.schema_editor import set_schema

COLUMNS = (Column("id", "int64"), Column("delay", "float64", nullable=True), Column("gate", "uint8", nullable=True))
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
    made = set_schema(text, COLUMNS)
    assert parse_manifest(made).spec.schema == COLUMNS
    assert parse_manifest(made).spec.replicas == 2
    assert set_schema(made, COLUMNS) == made


def test_comments_and_the_style_stay() -> None:
    assert (
        set_schema(FLOW, COLUMNS)
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
        set_schema(f"{HEAD}spec: {{replicas: 2}}\n", COLUMNS)
