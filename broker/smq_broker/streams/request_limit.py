"""Refuses requests that are too large, and counts the memory that they took."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from smq_core.errors import InvalidRequest
from smq_storage.process.locks import make_lock

# The largest one opens a segment: it has the topic's columns.
MAX_REQUEST_BYTES = 4 * 1024 * 1024


class RequestLimit:
    """Safe from many threads."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self.refused_bytes = 0
        """Of all requests that were refused. Flight has received them, and the process keeps their memory."""

    def check(self, request: Any) -> Any:
        """The same request. Raises InvalidRequest if it is too large, before it is copied or decoded."""
        size = request.size if isinstance(request, pa.Buffer) else len(request)
        if size > MAX_REQUEST_BYTES:
            with self._lock:
                self.refused_bytes += size
            raise InvalidRequest(f"a request has {size} bytes, at most {MAX_REQUEST_BYTES} are accepted")
        return request
