"""Presigned PUT URLs that create one file of one length and content (AWS Signature Version 4, in the query).

obstore's ``sign`` signs the name alone, so such a URL could write any bytes, any number of times. Here the request's
headers are signed, too: a store refuses a request that lacks one of them or has another value.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"
# The body is not part of the signature: a signed header has its checksum.
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class SigningKey:
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class PresignedPut:
    """A URL for one PUT, with the headers that the request must have. The HTTP client adds Content-Length itself."""

    url: str = field(repr=False)
    headers: Mapping[str, str]


def create_only_headers(size: int, sha256: bytes) -> dict[str, str]:
    """The headers of a PUT that creates a file of that size (bytes) and SHA-256 digest, and replaces none."""
    return {
        "content-length": str(size),
        "if-none-match": "*",
        "x-amz-checksum-sha256": base64.b64encode(sha256).decode(),
    }


def presign(
    method: str,
    url: str,
    headers: Mapping[str, str],
    key: SigningKey,
    region: str,
    *,
    now: datetime,
    lifetime: timedelta,
) -> str:
    """The URL with a signature for requests with these headers; their names are in lower case.

    ``url`` has an encoded path and no query. ``now`` is in UTC. The store accepts requests that begin within
    ``lifetime`` after ``now`` by its own clock.
    """
    parts = urlsplit(url)
    signed = {"host": parts.netloc, **headers}
    names = ";".join(sorted(signed))
    time = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{time[:8]}/{region}/s3/aws4_request"
    parameters = {
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{key.access_key}/{scope}",
        "X-Amz-Date": time,
        "X-Amz-Expires": str(round(lifetime.total_seconds())),
        "X-Amz-SignedHeaders": names,
    }
    if key.session_token:
        parameters["X-Amz-Security-Token"] = key.session_token
    query = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(parameters.items()))
    lines = [f"{name}:{signed[name].strip()}\n" for name in sorted(signed)]
    request = "\n".join([method, parts.path, query, "".join(lines), names, UNSIGNED_PAYLOAD])
    return f"{url}?{query}&X-Amz-Signature={_signature(request, time, scope, key)}"


def signed_headers(
    url: str, headers: Mapping[str, str], body: bytes, key: SigningKey, region: str, service: str, *, now: datetime
) -> dict[str, str]:
    """The headers of a POST of that body to a URL without a query, with its signature. Their names are in lower case.

    ``now`` is in UTC.
    """
    parts = urlsplit(url)
    time = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{time[:8]}/{region}/{service}/aws4_request"
    signed = {**headers, "host": parts.netloc, "x-amz-date": time}
    if key.session_token:
        signed["x-amz-security-token"] = key.session_token
    names = ";".join(sorted(signed))
    lines = [f"{name}:{signed[name].strip()}\n" for name in sorted(signed)]
    digest = hashlib.sha256(body).hexdigest()
    signature = _signature("\n".join(["POST", parts.path or "/", "", "".join(lines), names, digest]), time, scope, key)
    credential = f"Credential={key.access_key}/{scope}"
    return {**signed, "authorization": f"{ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"}


def _signature(request: str, time: str, scope: str, key: SigningKey) -> str:
    text = "\n".join([ALGORITHM, time, scope, hashlib.sha256(request.encode()).hexdigest()])
    derived = f"AWS4{key.secret_key}".encode()
    for part in scope.split("/"):
        derived = _hmac(derived, part)
    return _hmac(derived, text).hex()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
