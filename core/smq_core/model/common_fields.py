"""Copies the fields that two dataclasses have in common."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def fields_of(kind: type[Any], value: object) -> dict[str, Any]:
    """What ``value`` has in the fields of the dataclass ``kind``, by name."""
    return {field.name: getattr(value, field.name) for field in fields(kind)}
