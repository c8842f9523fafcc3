"""Creates obstore's clients with their credentials, timeouts and retries."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore.store import MemoryStore, S3Store

from smq_core.errors import InvalidRequest, StoreUnsupported
from smq_storage.object_store.presigned_urls import SigningKey

DEFAULT_TIMEOUT = 15.0
CONNECT_TIMEOUT = 2.0
DEFAULT_REGION = "us-east-1"
READ_RETRIES = 2

# Credentials may come from these variables if none are given. Without any of them, requests are not signed.
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)

_memory_stores: dict[str, MemoryStore] = {}
_memory_stores_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class S3Options:
    """What the url does not say. ``timeout`` limits one request, in seconds."""

    endpoint: str | None
    region: str | None
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)
    timeout: float
    proxy: str | None = None


def has_credentials(access_key: str | None) -> bool:
    """Whether requests are signed: with the key that is given, or with what the environment has."""
    return bool(access_key) or any(os.environ.get(name) for name in _CREDENTIALS)


def signing_key(options: S3Options, where: str) -> SigningKey:
    """The key for presigned URLs. Raises StoreUnsupported if requests to ``where`` are not signed, or by a role."""
    if options.access_key:
        return SigningKey(options.access_key, options.secret_key or "", options.session_token)
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        return SigningKey(access_key, secret_key, os.environ.get("AWS_SESSION_TOKEN") or None)
    if has_credentials(None):
        raise StoreUnsupported(
            f"the credentials for {where} are those of a role, which cannot sign URLs: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY for the leader, or give producers credentials of their own"
        )
    raise StoreUnsupported(
        f"requests to {where} are not signed, so there is no key to sign URLs with: producers can write there directly"
    )


def region_of(options: S3Options) -> str:
    return options.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def client_options(url: str | None, timeout: float, proxy: str | None) -> Any:
    """The options of an HTTP client for that address; ``timeout`` limits one request, in seconds."""
    return {
        "allow_http": (url or "").startswith("http://"),
        "timeout": timedelta(seconds=timeout),
        "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT, timeout)),
        **({"proxy_url": proxy} if proxy else {}),
    }


def create_clients(url: str, options: S3Options) -> tuple[Any, Any]:
    """Two clients of the same store: one for writes, without retries, and one for reads. Sends nothing yet.

    Raises InvalidRequest if the url is invalid.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        memory = _memory_store(parts.netloc)
        return memory, memory
    if parts.scheme != "s3" or not parts.netloc:
        raise InvalidRequest(f"the store's url must be s3://bucket or s3://bucket/prefix, not {url!r}")
    prefix = parts.path.strip("/") or None
    return _s3(parts.netloc, prefix, options, retries=0), _s3(parts.netloc, prefix, options, READ_RETRIES)


def _memory_store(name: str) -> MemoryStore:
    if not name:
        return MemoryStore()
    with _memory_stores_lock:
        return _memory_stores.setdefault(name, MemoryStore())


def _s3(bucket: str, prefix: str | None, options: S3Options, retries: int) -> S3Store:
    timeout = timedelta(seconds=options.timeout)
    return S3Store(
        bucket,
        prefix=prefix,
        config=_config(options),
        client_options=client_options(options.endpoint, options.timeout, options.proxy),
        retry_config={
            "max_retries": retries,
            "retry_timeout": timeout,
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
    )


def _config(options: S3Options) -> Any:
    config: dict[str, Any] = {"region": region_of(options), "conditional_put": "etag"}
    if options.endpoint:
        config["endpoint"] = options.endpoint.rstrip("/")
    if options.access_key:
        config |= {"access_key_id": options.access_key, "secret_access_key": options.secret_key or ""}
        if options.session_token:
            config["session_token"] = options.session_token
    elif not has_credentials(None):
        config["skip_signature"] = True
    return config
