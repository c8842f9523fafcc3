"""Times as the Kubernetes API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(microseconds: int) -> str:
    """``2024-01-01T00:00:00Z``; the API has whole seconds."""
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
