"""Creates obstore's clients with their credentials, timeouts and retries."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import MemoryStore, S3Store

from smq_core.errors import InvalidRequest
from smq_storage.object_store.credentials import has_role, key_of_environment
from smq_storage.object_store.presigned.urls import SigningKey

DEFAULT_TIMEOUT_SECONDS = 15.0
CONNECT_TIMEOUT_SECONDS = 2.0
DEFAULT_REGION = "us-east-1"
READ_RETRIES = 2

_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")

# Variables that obstore applies to every write, and that have no setting here which could replace them.
_OTHER_VARIABLES = ("AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_CUSTOMER_KEY_BASE64", "AWS_CHECKSUM_ALGORITHM")

_memory_stores: dict[str, MemoryStore] = {}
_memory_stores_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """What the url does not say. ``timeout`` limits one request, in seconds.

    ``key`` is None if the environment has the credentials, or there are none.
    """

    endpoint: str | None
    region: str
    key: SigningKey | None
    timeout: float
    proxy: str | None = None


def endpoint_of_environment() -> str | None:
    """The endpoint for programs that are given none."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def region_of_environment() -> str | None:
    """The region for programs that are given none."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def client_options(url: str | None, timeout: float, proxy: str | None) -> Any:
    """The options of an HTTP client for that address; ``timeout`` limits one request, in seconds."""
    return {
        "allow_http": (url or "").startswith("http://"),
        "timeout": timedelta(seconds=timeout),
        "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT_SECONDS, timeout)),
        **_proxy_options(url, proxy),
    }


def is_this_machine(host: str | None) -> bool:
    """Whether no proxy of the environment is used for that host."""
    return host in _THIS_MACHINE


def _proxy_options(url: str | None, proxy: str | None) -> dict[str, str]:
    """The proxy that is given, or else the environment's, but none for a store on this machine."""
    if proxy or not is_this_machine(urlsplit(url or "").hostname):
        return {"proxy_url": proxy} if proxy else {}
    # The client ignores the environment's proxy only if it has its own proxy. This one is for no host.
    return {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": ",".join(_THIS_MACHINE)}


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
    key = options.key or key_of_environment()
    try:
        return S3Store(
            bucket,
            prefix=prefix,
            config=_config(options, signed=key is not None or has_role()),
            client_options=client_options(options.endpoint, options.timeout, options.proxy),
            # A provider replaces all credentials of the environment. A key in the configuration would replace the
            # environment's key alone, and be sent with the environment's token.
            credential_provider=_provider(key) if key is not None else None,
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
    except (BaseError, ValueError) as error:
        raise InvalidRequest(f"the store's settings cannot be used: {str(error).splitlines()[0]}{_hint()}") from None


def _provider(key: SigningKey) -> Callable[[], Any]:
    return lambda: {
        "access_key_id": key.access_key,
        "secret_access_key": key.secret_key,
        "token": key.session_token,
        "expires_at": None,
    }


def _config(options: S3Options, signed: bool) -> Any:
    """Sets whatever says where requests go and what they are, because obstore takes the rest from the environment.

    Of the variables, only those of roles, of encryption and of checksums still have an effect.
    """
    endpoint = (options.endpoint or f"https://s3.{options.region}.amazonaws.com").rstrip("/")
    return {
        "region": options.region,
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,  # obstore prefers it to the other one
        "virtual_hosted_style_request": False,
        "skip_signature": not signed,
        "conditional_put": "etag",
        "copy_if_not_exists": "multipart",  # never used, but a wrong variable would be an error
        "s3_express": False,
        "unsigned_payload": False,
        "disable_tagging": False,
        "disable_bulk_delete": False,
        "request_payer": False,
    }


def _hint() -> str:
    names = [name for name in _OTHER_VARIABLES if os.environ.get(name)]
    return f"; {', '.join(names)} in the environment may be wrong" if names else ""
