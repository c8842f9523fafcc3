"""Sets an annotation in a manifest's text and keeps everything else, comments included."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.util import load_yaml_guess_indent

from smq_core.errors import SpecRejected


def set_annotation(text: str, name: str, value: str) -> str:
    """The manifest (YAML or JSON, one resource) with that annotation. Raises SpecRejected if it has no metadata."""
    try:
        resource = json.loads(text)
    except ValueError:
        return _set_in_yaml(text, name, value)
    _set(resource, name, value, {})
    return json.dumps(resource, indent=2 if "\n" in text.strip() else None, ensure_ascii=False) + "\n"


def _set_in_yaml(text: str, name: str, value: str) -> str:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 16  # long lines stay as they are
    try:
        _, indent, offset = load_yaml_guess_indent(text)
        if indent is not None and offset is not None:
            yaml.indent(sequence=indent, offset=offset)
        resource = yaml.load(text)
    except YAMLError as error:
        raise SpecRejected(f"the manifest is not YAML: {error}") from None
    _set(resource, name, value, CommentedMap())
    out = StringIO()
    yaml.dump(resource, out)
    return out.getvalue()


def _set(resource: Any, name: str, value: str, no_annotations: dict[str, Any]) -> None:
    metadata = resource.get("metadata") if isinstance(resource, dict) else None
    if not isinstance(metadata, dict) or not metadata:
        raise SpecRejected("the manifest has no metadata that an annotation could be written into: write its name")
    if not isinstance(metadata.get("annotations"), dict):
        _put_first(metadata, "annotations", no_annotations)
    _put_first(metadata["annotations"], name, value)


def _put_first(mapping: dict[str, Any], key: str, value: object) -> None:
    """A new key comes first, because comments and empty lines after a block belong to its last key."""
    if isinstance(mapping, CommentedMap) and key not in mapping:
        mapping.insert(0, key, value)
    else:
        mapping[key] = value
