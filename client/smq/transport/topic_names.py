"""Names of topics as programs write them."""

from __future__ import annotations

from smq_core.errors import InvalidRequest


def full_topic_name(name: str, namespace: str = "default") -> str:
    """``flights`` -> ``default/flights``; a full name stays. Raises InvalidRequest if it is no valid topic name."""
    if not isinstance(name, str) or not name.strip("/"):
        raise InvalidRequest(f"a topic name must be `topic` or `namespace/topic`, not {name!r}")
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):
        raise InvalidRequest(f"a topic name must be `topic` or `namespace/topic`, not {name!r}")
    return name if len(parts) == 2 else f"{namespace}/{name}"
