"""The object store as the rest of the project sees it: few calls, few errors. The only module that imports obstore.

Writes are never retried here and never sent in parts: a conditional write whose answer was lost is resolved by
``conditional.py``, which a retry inside the client would make impossible. Reads are tried three times.

Paths are relative to the store's root, without a leading slash. All calls block; all are safe from many threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import MemoryStore, S3Store

from smq_core.errors import InvalidRequest, StoreUnavailable

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Data = Buffer | Sequence[Buffer]

DEFAULT_TIMEOUT = 15.0
CONNECT_TIMEOUT = 2.0
DEFAULT_REGION = "us-east-1"

# Where credentials may come from when none are given; without any of these, requests are not signed.
CREDENTIAL_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)

T = TypeVar("T")


class ObjectMissing(Exception):
    """There is no object of that name."""


class AlreadyThere(Exception):
    """A create-only write was refused. Only a hint of what is there: read it back before believing anything."""


class Changed(Exception):
    """A compare-and-swap write was refused: the object is not, or no longer, the one with that etag."""


class StoreDenied(StoreUnavailable):
    """The store refuses these credentials. Trying again does not help until a person changes something."""

    retry = False


class Object(NamedTuple):
    """An object that was read: its bytes (no copy of what the client received) and its etag."""

    data: memoryview
    etag: str


class Listed(NamedTuple):
    """One object in a listing: path below the root, size in bytes, time of the last change."""

    path: str
    size: int
    modified: datetime


class Tail(NamedTuple):
    """The last bytes of an object, its whole size, its etag."""

    data: memoryview
    size: int
    etag: str


class Store:
    """A bucket (or a prefix in one). Use :func:`open_store`.

    Every method raises StoreUnavailable when the store gives no clear answer (timeout, dropped connection, 5xx, 409)
    and its subclass StoreDenied when it refuses the credentials.
    """

    def __init__(self, url: str, where: str, writer: Any, reader: Any) -> None:
        self.url = url
        self._where = where
        self._writer = writer
        self._reader = reader

    def __repr__(self) -> str:
        return f"Store({self._where})"

    def get(self, path: str) -> Object:
        """The whole object. Raises ObjectMissing."""
        result = self._call(lambda: _read(self._reader, path, None), path)
        return Object(*result[:2])

    def get_range(self, path: str, start: int, stop: int) -> memoryview:
        """Bytes ``start .. stop - 1``, fewer when the object ends before. Raises ObjectMissing."""
        return self._call(lambda: _read(self._reader, path, (start, stop)), path)[0]

    def get_tail(self, path: str, nbytes: int) -> Tail:
        """The last ``nbytes`` bytes (all of them when the object is smaller). Raises ObjectMissing."""
        data, etag, size = self._call(lambda: _read(self._reader, path, {"suffix": nbytes}), path)
        return Tail(data, size, etag)

    def head(self, path: str) -> Listed:
        """Size and time of an object. Raises ObjectMissing."""
        meta = self._call(lambda: obstore.head(self._reader, path), path)
        return Listed(path, meta["size"], meta["last_modified"])

    def put_new(self, path: str, data: Data) -> str:
        """Creates the object and returns its etag. Raises AlreadyThere when the store says that it exists."""
        return self._put(path, data, "create")

    def put_if(self, path: str, data: Data, etag: str) -> str:
        """Replaces the object with that etag and returns the new etag. Raises Changed when it is another one."""
        return self._put(path, data, {"e_tag": etag})

    def put(self, path: str, data: Data) -> str:
        """Creates or replaces the object, whatever is there. Returns the etag."""
        return self._put(path, data, "overwrite")

    def delete(self, path: str) -> None:
        """Deletes the object; that there is none is fine."""
        try:
            self._call(lambda: obstore.delete(self._writer, path), path)
        except ObjectMissing:
            return

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[Listed]:
        """Objects below the folder ``prefix``, in the order of their names, after the path ``start_after``.

        A hint, never a proof: a listing may be older than the last write.
        """
        pages = obstore.list(self._reader, prefix or None, offset=start_after, chunk_size=1000)
        try:
            while page := self._call(lambda: next(pages, None), prefix):
                for meta in page:
                    yield Listed(meta["path"], meta["size"], meta["last_modified"])
        except ObjectMissing:
            return

    def folders(self, prefix: str) -> Sequence[str]:
        """The folders directly below the folder ``prefix``, as paths. A hint, as every listing."""
        try:
            found = self._call(lambda: obstore.list_with_delimiter(self._reader, prefix or None), prefix)
        except ObjectMissing:
            return []
        return sorted(str(folder).rstrip("/") for folder in found["common_prefixes"])

    def _put(self, path: str, data: Data, mode: Any) -> str:
        body = _body(data)
        try:
            result = self._call(lambda: obstore.put(self._writer, path, body, mode=mode, use_multipart=False), path)
        except ObjectMissing:
            # Some stores answer so to If-Match on an object that does not exist.
            raise Changed(path) from None
        return str(result["e_tag"])

    def _call(self, call: Callable[[], T], path: str) -> T:
        try:
            return call()
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise StoreUnavailable(f"there is no bucket at {self._where}: create it, or change the url") from None
            raise ObjectMissing(path) from None
        except AlreadyExistsError as error:
            # 409 arrives here as well, from create-only and from compare-and-swap; both are unclear until read back.
            raise AlreadyThere(f"{path}: {_first_line(error)}") from None
        except PreconditionError:
            raise Changed(path) from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise StoreDenied(
                f"{self._where} refuses the credentials for {path!r}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
                f"to a key that may read, write, list and delete there ({_first_line(error)})"
            ) from None
        except (BaseError, OSError) as error:
            raise StoreUnavailable(
                f"no clear answer from {self._where} for {path!r}: {_first_line(error)}", path=path
            ) from None


def open_store(
    url: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Store:
    """Opens ``s3://bucket/prefix``, or ``memory://name`` (shared within the process; ``memory://`` is a new one).

    Nothing is sent yet. Credentials come from the arguments or the usual AWS_ variables; without any, requests are
    not signed. ``timeout`` bounds one request, in seconds. Raises InvalidRequest when the url is not understood.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        memory = _memory(parts.netloc)
        return Store(url, url, memory, memory)
    if parts.scheme != "s3" or not parts.netloc:
        raise InvalidRequest(f"the store's url must be s3://bucket or s3://bucket/prefix, not {url!r}")
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    config: dict[str, Any] = {
        "region": region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION,
        "conditional_put": "etag",
    }
    if endpoint:
        config["endpoint"] = endpoint.rstrip("/")
    if access_key:
        config |= {"access_key_id": access_key, "secret_access_key": secret_key or ""}
        if session_token:
            config["session_token"] = session_token
    elif not any(os.environ.get(name) for name in CREDENTIAL_VARIABLES):
        config["skip_signature"] = True
    client = {
        "allow_http": (endpoint or "").startswith("http://"),
        "timeout": timedelta(seconds=timeout),
        "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT, timeout)),
    }

    def s3(retries: int) -> Any:
        retry = {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=timeout),
            "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2},
        }
        return S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            config=config,  # type: ignore[arg-type]
            client_options=client,  # type: ignore[arg-type]
            retry_config=retry,  # type: ignore[arg-type]
        )

    where = f"{url} ({endpoint})" if endpoint else url
    return Store(url, where, writer=s3(retries=0), reader=s3(retries=2))


_memories: dict[str, MemoryStore] = {}
_memories_lock = threading.Lock()


def _memory(name: str) -> MemoryStore:
    if not name:
        return MemoryStore()
    with _memories_lock:
        return _memories.setdefault(name, MemoryStore())


def _read(store: Any, path: str, part: Any) -> tuple[memoryview, str, int]:
    # The body is fetched by bytes(), so it belongs inside the guarded call.
    result = obstore.get(store, path, options={"range": part} if part else {})
    return memoryview(result.bytes()), str(result.meta["e_tag"]), result.meta["size"]


def _body(data: Any) -> Any:
    """What obstore takes without copying: flat memoryviews of unsigned bytes (an Arrow buffer's are signed)."""
    if isinstance(data, (list, tuple)):
        return [_body(part) for part in data]
    return data if isinstance(data, bytes) else memoryview(data).cast("B")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the store is and how to reach it; what configuration and messages carry instead of an open store."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    timeout: float = DEFAULT_TIMEOUT

    @classmethod
    def from_env(cls) -> StoreSettings:
        """From SMQ_FILER_URL (required), SMQ_FILER_ENDPOINT, SMQ_FILER_REGION, SMQ_FILER_TIMEOUT (seconds).

        Credentials stay in the AWS_ variables. Raises InvalidRequest.
        """
        url = os.environ.get("SMQ_FILER_URL")
        if not url:
            raise InvalidRequest("SMQ_FILER_URL is not set: give the store's url, such as s3://smq")
        timeout = os.environ.get("SMQ_FILER_TIMEOUT") or str(DEFAULT_TIMEOUT)
        try:
            seconds = float(timeout)
        except ValueError:
            raise InvalidRequest(f"SMQ_FILER_TIMEOUT must be a number of seconds, not {timeout!r}") from None
        return cls(
            url,
            endpoint=os.environ.get("SMQ_FILER_ENDPOINT") or None,
            region=os.environ.get("SMQ_FILER_REGION") or None,
            timeout=seconds,
        )

    @classmethod
    def from_public_options(cls, url: str, options: dict[str, str]) -> StoreSettings:
        """The reverse of :meth:`to_public_options`; credentials come from the environment."""
        return cls(url, endpoint=options.get("endpoint"), region=options.get("region"))

    def to_public_options(self) -> dict[str, str]:
        """What may be told to readers besides the url: endpoint and region, never credentials."""
        options = {"endpoint": self.endpoint, "region": self.region}
        return {name: value for name, value in options.items() if value}

    def to_env(self) -> dict[str, str]:
        """The environment variables with which a child process opens the same store."""
        env = {
            "SMQ_FILER_URL": self.url,
            "SMQ_FILER_ENDPOINT": self.endpoint,
            "SMQ_FILER_REGION": self.region,
            "SMQ_FILER_TIMEOUT": str(self.timeout),
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
        }
        return {name: value for name, value in env.items() if value}

    def open(self) -> Store:
        return open_store(
            self.url,
            endpoint=self.endpoint,
            region=self.region,
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            timeout=self.timeout,
        )
