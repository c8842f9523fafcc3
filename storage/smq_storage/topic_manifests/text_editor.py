"""Changes one part of a manifest's text and keeps everything else, comments included."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.util import load_yaml_guess_indent

from smq_core.errors import SpecRejected


def edit_text(text: str, change: Callable[[Any], None]) -> str:
    """The manifest (YAML or JSON, one resource) after ``change`` of its mapping. Raises SpecRejected.

    The mapping of a YAML text is a CommentedMap of ruamel.yaml, that of a JSON text a dict.
    """
    try:
        resource = json.loads(text)
    except ValueError:
        return _edit_yaml(text, change)
    change(resource)
    return json.dumps(resource, indent=2 if "\n" in text.strip() else None, ensure_ascii=False) + "\n"


def _edit_yaml(text: str, change: Callable[[Any], None]) -> str:
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
    change(resource)
    out = StringIO()
    yaml.dump(resource, out)
    return out.getvalue()
