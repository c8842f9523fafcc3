"""Changes fields of the spec in the text of a manifest, whose style and comments stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml.comments import CommentedMap

from smq_core.errors import SpecRejected
from smq_storage.topic_manifests.spec_patch import SpecPatch
from smq_storage.topic_manifests.text_editor import edit_text


def edit_spec(text: str, patch: SpecPatch) -> str:
    """The manifest with these fields. Of ``schema``, columns keep their place, and new ones come last.

    Raises SpecRejected.
    """
    return edit_text(text, lambda resource: _edit(resource, patch))


def _edit(resource: Any, patch: SpecPatch) -> None:
    if not isinstance(resource, dict):
        raise SpecRejected("the manifest must be a mapping with apiVersion, kind, metadata and spec")
    fields = {name: value for name, value in patch.items() if name != "schema"}
    if fields:
        _put(resource, "spec", fields)
    if "schema" in patch:
        _set_columns(resource, patch["schema"])


def _put(parent: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        if not isinstance(parent.get(name), dict):
            parent[name] = _like(parent, {})
        for inner, inner_value in value.items():
            _put(parent[name], inner, inner_value)
    elif value is None:
        parent.pop(name, None)
    else:
        parent[name] = value


def _set_columns(resource: dict[str, Any], columns: Sequence[Mapping[str, Any]]) -> None:
    spec = resource.get("spec")
    listed = spec.get("schema") if isinstance(spec, dict) else None
    if not isinstance(listed, list) or not all(isinstance(item, dict) and "name" in item for item in listed):
        raise SpecRejected("the manifest has no list spec.schema that could be changed: write its columns first")
    wanted = {column["name"] for column in columns}
    style = listed[-1] if listed else None
    for number in reversed(range(len(listed))):
        if listed[number]["name"] not in wanted:
            del listed[number]
    present = {item["name"]: item for item in listed}
    for column in columns:
        item = present.get(column["name"])
        if item is None:
            listed.append(_like(style, column))
            continue
        if item.get("type") != column["type"]:
            item["type"] = column["type"]
        if bool(item.get("nullable", False)) != column.get("nullable", False):
            item["nullable"] = column.get("nullable", False)


def _like(style: object, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as a mapping that is written as that one is: as JSON, or as YAML in one line or in several."""
    if not isinstance(style, CommentedMap):
        return dict(fields)
    made = CommentedMap(fields)
    if style.fa.flow_style():
        made.fa.set_flow_style()
    return made
