"""Follows the pages of a list of the leader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def all_pages(call: Callable[..., Any], request: Any, **options: Any) -> Iterator[Any]:
    """The replies with all pages. ``call`` is that of a stub, ``options`` are its own. Raises what it raises."""
    while True:
        reply = call(request, **options)
        yield reply
        if not reply.next_page_token:
            return
        request.page_token = reply.next_page_token
