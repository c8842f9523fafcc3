"""Fetches documents of an issuer: JSON, of limited size, within a limited time, and encrypted."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from smq_core.errors import Unavailable
from smq_operator.runtime.external_callers import is_protected

MAX_DOCUMENT_BYTES = 1 << 20
# For one document. The leader answers other callers meanwhile.
FETCH_TIMEOUT_SECONDS = 5.0
_READ_BYTES = 1 << 16


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another place than the issuer's is none that the user has named."""

    def redirect_request(self, *_: object) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def fetch_document(url: str) -> Mapping[str, Any]:
    """Blocks for some seconds at most. Raises Unavailable if there is no such document."""
    if not is_protected(url):
        raise Unavailable(f"{url[:200]!r} is no https:// URL without a query")
    deadline = time.monotonic() + FETCH_TIMEOUT_SECONDS
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    text = bytearray()
    try:
        with _opener.open(request, timeout=FETCH_TIMEOUT_SECONDS) as response:
            while part := response.read1(_READ_BYTES):
                text += part
                if len(text) > MAX_DOCUMENT_BYTES:
                    raise Unavailable(f"{url} has more than {MAX_DOCUMENT_BYTES:,} bytes")
                if time.monotonic() > deadline:
                    raise Unavailable(f"{url} was not read within {FETCH_TIMEOUT_SECONDS:.0f} s")
        document = json.loads(text)
    except urllib.error.HTTPError as error:
        raise Unavailable(f"{url} answers with {error.code}") from None
    except (OSError, HTTPException) as error:
        raise Unavailable(f"{url} does not answer: {error}") from None
    except (ValueError, RecursionError):
        raise Unavailable(f"{url} has no JSON") from None
    if not isinstance(document, Mapping):
        raise Unavailable(f"{url} has no JSON object")
    return document
