"""Changed fields of a spec. It needs none of the packages that edit a manifest's text, which an image does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Fields of a spec with new values, such as ``{"retention": {"age": "3d"}}``. None removes a field; others stay.
SpecPatch = Mapping[str, Any]


def patched_spec(spec: Mapping[str, Any], patch: SpecPatch) -> dict[str, Any]:
    """A copy of the fields with those of the patch in their place."""
    made = dict(spec)
    for name, value in patch.items():
        if isinstance(value, Mapping):
            inside = made.get(name)
            made[name] = patched_spec(inside if isinstance(inside, Mapping) else {}, value)
        elif value is None:
            made.pop(name, None)
        else:
            made[name] = value
    return made
