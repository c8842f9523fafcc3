"""Sets the columns of a topic in a manifest's text, in the style of the columns that are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruamel.yaml.comments import CommentedMap

from smq_core.errors import SpecRejected
from smq_core.model.entities import Column
from smq_storage.topic_manifests.parser import schema_fields
from smq_storage.topic_manifests.text_editor import edit_text


def set_schema(text: str, columns: Sequence[Column]) -> str:
    """The manifest with these columns: the others are removed, and new ones come last. Raises SpecRejected."""
    return edit_text(text, lambda resource: _set_columns(resource, columns))


def _set_columns(resource: Any, columns: Sequence[Column]) -> None:
    spec = resource.get("spec") if isinstance(resource, dict) else None
    listed = spec.get("schema") if isinstance(spec, dict) else None
    if not isinstance(listed, list) or not all(isinstance(item, dict) and "name" in item for item in listed):
        raise SpecRejected("the manifest has no list spec.schema that could be changed: write its columns first")
    wanted = {column.name for column in columns}
    style = listed[-1] if listed else None
    for number in reversed(range(len(listed))):
        if listed[number]["name"] not in wanted:
            del listed[number]
    present = {item["name"]: item for item in listed}
    for column, fields in zip(columns, schema_fields(columns), strict=True):
        item = present.get(column.name)
        if item is None:
            listed.append(_like(style, fields))
            continue
        if item.get("type") != column.type:
            item["type"] = column.type
        if bool(item.get("nullable", False)) != column.nullable:
            item["nullable"] = column.nullable


def _like(style: object, fields: dict[str, object]) -> dict[str, object]:
    """The fields as a mapping that is written as that one is: in one line or in several."""
    if not isinstance(style, CommentedMap):
        return fields
    made = CommentedMap(fields)
    if style.fa.flow_style():
        made.fa.set_flow_style()
    return made
