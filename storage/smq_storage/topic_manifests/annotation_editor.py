"""Sets an annotation in a manifest's text and keeps everything else, comments included."""

from __future__ import annotations

from typing import Any

from ruamel.yaml.comments import CommentedMap

from smq_core.errors import SpecRejected
from smq_storage.topic_manifests.text_editor import edit_text


def set_annotation(text: str, name: str, value: str) -> str:
    """The manifest (YAML or JSON, one resource) with that annotation. Raises SpecRejected if it has no metadata."""
    return edit_text(text, lambda resource: _set(resource, name, value))


def _set(resource: Any, name: str, value: str) -> None:
    metadata = resource.get("metadata") if isinstance(resource, dict) else None
    if not isinstance(metadata, dict) or not metadata:
        raise SpecRejected("the manifest has no metadata that an annotation could be written into: write its name")
    if not isinstance(metadata.get("annotations"), dict):
        _put_first(metadata, "annotations", CommentedMap() if isinstance(metadata, CommentedMap) else {})
    _put_first(metadata["annotations"], name, value)


def _put_first(mapping: dict[str, Any], key: str, value: object) -> None:
    """A new key comes first, because comments and empty lines after a block belong to its last key."""
    if isinstance(mapping, CommentedMap) and key not in mapping:
        mapping.insert(0, key, value)
    else:
        mapping[key] = value
