"""Sets an annotation in a manifest's text, and leaves everything else as a person wrote it, comments too."""

from __future__ import annotations

import json

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from smq_core.errors import InvalidManifest


def annotated(text: str, name: str, value: str) -> str:
    """The manifest (YAML or JSON, one resource) with that annotation. Raises InvalidManifest when it has no place."""
    try:
        resource = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise InvalidManifest(f"the manifest is not YAML: {error}") from None
    metadata = _value(resource, "metadata")
    if not isinstance(metadata, MappingNode) or not metadata.value:
        raise InvalidManifest("the manifest has no metadata that an annotation could be written into: write its name")
    annotations = _value(metadata, "annotations")
    known = _value(annotations, name)
    if known is not None:
        return _replaced(text, known, json.dumps(value))
    # In quotes, so that one form serves YAML and JSON.
    entry = f"{json.dumps(name)}: {json.dumps(value)}"
    if isinstance(annotations, MappingNode) and annotations.value:
        return _inserted(text, annotations, entry)
    if annotations is not None:
        empty = annotations.start_mark.index == annotations.end_mark.index  # `annotations:` and nothing after it
        return _replaced(text, annotations, f"{' ' if empty else ''}{{{entry}}}")
    return _inserted(text, metadata, f'"annotations": {{{entry}}}')


def _value(mapping: Node | None, key: str) -> Node | None:
    if isinstance(mapping, MappingNode):
        for name, value in mapping.value:
            if isinstance(name, ScalarNode) and name.value == key:
                found: Node = value
                return found
    return None


def _replaced(text: str, node: Node, new: str) -> str:
    return text[: node.start_mark.index] + new + text[node.end_mark.index :]


def _inserted(text: str, mapping: MappingNode, entry: str) -> str:
    """Before the first entry: on its line between braces, else on a line of its own."""
    first = mapping.value[0][0].start_mark
    between = ", " if mapping.flow_style else "\n" + " " * first.column
    return text[: first.index] + entry + between + text[first.index :]
