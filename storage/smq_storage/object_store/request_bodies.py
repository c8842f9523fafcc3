"""The data of a write: one buffer (bytes, memoryview or an Arrow buffer, sent without a copy), or several in a row."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer

Data: TypeAlias = "Buffer | Sequence[Buffer]"


def request_body(data: Any) -> Any:
    """What obstore takes without copying: flat memoryviews of unsigned bytes (an Arrow buffer's are signed)."""
    if isinstance(data, (list, tuple)):
        return [request_body(part) for part in data]
    return data if isinstance(data, bytes) else memoryview(data).cast("B")


def size_and_sha256(data: Data) -> tuple[int, bytes]:
    """The length in bytes, and the SHA-256 digest."""
    body = request_body(data)
    parts = body if isinstance(body, list) else [body]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return sum(len(part) for part in parts), digest.digest()
