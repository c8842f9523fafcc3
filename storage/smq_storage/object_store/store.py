"""The object store as the rest of the project uses it: few calls, few errors.

Only this module, ``clients.py``, ``failures.py`` and ``presigned_puts.py`` import obstore.

Writes are never retried here and never sent in parts, because ``conditional_writes.py`` finds out what became of a
write whose answer was lost, and a retry inside the client would make that impossible. Reads are tried three times.

Paths are relative to the store's root, without a leading slash. All calls block; all are safe from many threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from smq_core.errors import (
    BucketMissing,
    InvalidRequest,
    StoreDenied,
    StoreStateUnknown,
    StoreUnavailable,
    StoreUnsupported,
)
from smq_storage.object_store.clients import (
    DEFAULT_REGION,
    DEFAULT_TIMEOUT_SECONDS,
    S3Options,
    create_clients,
    endpoint_of_environment,
    region_of_environment,
)
from smq_storage.object_store.credentials import given_key, has_credentials, signing_key
from smq_storage.object_store.failures import (
    DISK_FULL_HINT,
    cause,
    first_line,
    is_denied,
    is_not_implemented,
    is_panic,
    may_be_disk_full,
    rejection,
    store_reason,
)
from smq_storage.object_store.presigned_urls import PresignedPut, SigningKey, create_only_headers, presign
from smq_storage.object_store.request_bodies import Data, request_body
from smq_storage.object_store.results import (
    EtagMismatch,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectTail,
    StoredObject,
)

# How much of a path an error repeats, in characters.
_MAX_PATH = 200

T = TypeVar("T")

CREDENTIALS_OPTION, REQUIRED = "credentials", "required"
"""Among the public options of a store that takes only signed requests."""

__all__ = [
    "Data",
    "EtagMismatch",
    "ObjectExists",
    "ObjectInfo",
    "ObjectMissing",
    "ObjectTail",
    "Store",
    "StoreSettings",
    "StoredObject",
    "open_store",
]


class Store:
    """A bucket (or a prefix in one). Use :func:`open_store`.

    If the store gives no clear answer (timeout, dropped connection, 5xx, 409), a read raises StoreUnavailable and a
    write or deletion StoreStateUnknown. Every method raises StoreDenied if the store refuses the credentials.
    """

    def __init__(self, *, url: str, where: str, writer: Any, reader: Any, options: S3Options | None = None) -> None:
        self.url = url
        self._where = where
        self._writer = writer
        self._reader = reader
        self._options = options

    def __repr__(self) -> str:
        return f"Store({self._where})"

    def get(self, path: str) -> StoredObject:
        """The whole object. Raises ObjectMissing."""
        result = self._call(lambda: _read(self._reader, path, None), path)
        return StoredObject(*result[:2])

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> memoryview:
        """Bytes ``start .. stop - 1``, fewer if the object ends before.

        Raises ObjectMissing, and EtagMismatch if the object that answered does not have the etag that is given.
        """
        # The answer has the etag, so If-Match is not needed, which some stores ignore.
        data, found, *_ = self._call(lambda: _read(self._reader, path, (start, stop)), path)
        if etag is not None and found != etag:
            raise EtagMismatch(path)
        return data

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        """The last ``nbytes`` bytes (all of them if the object is smaller). Raises ObjectMissing."""
        data, etag, size, modified = self._call(lambda: _read_tail(self._reader, path, nbytes), path)
        return ObjectTail(data, size, etag, modified)

    def head(self, path: str) -> ObjectInfo:
        """Size and time of an object. Raises ObjectMissing."""
        meta = self._call(lambda: obstore.head(self._reader, path), path)
        return ObjectInfo(path, meta["size"], meta["last_modified"])

    def put_new(self, path: str, data: Data) -> str:
        """Creates the object and returns its etag. Raises ObjectExists if the store reports that it exists."""
        return self._put(path, data, "create")

    def put_if(self, path: str, data: Data, etag: str) -> str:
        """Replaces the object with that etag and returns the new etag. Raises EtagMismatch if it has another one."""
        return self._put(path, data, {"e_tag": etag})

    def put(self, path: str, data: Data) -> str:
        """Creates or replaces the object, whatever is there. Returns the etag."""
        return self._put(path, data, "overwrite")

    def presign_put_new(
        self, path: str, size: int, sha256: bytes, lifetime: timedelta, now: datetime | None = None
    ) -> PresignedPut:
        """A URL that creates the object within ``lifetime``, with ``size`` bytes that have this SHA-256 digest.

        It replaces no object. Sends nothing. Raises StoreUnsupported if this store has no key that can sign it.
        """
        options = self._options
        if options is None:
            raise StoreUnsupported(f"{self._where} has no URLs: producers write there directly")
        key = signing_key(options.key, self._where)
        # obstore's own URL has the address as this store requests it. Its signature does not cover the headers.
        address = str(obstore.sign(self._writer, "PUT", path, timedelta(seconds=1))).partition("?")[0]
        headers = create_only_headers(size, sha256)
        now = now or datetime.now(UTC)
        url = presign("PUT", address, headers, key, options.region, now=now, lifetime=lifetime)
        return PresignedPut(url, headers)

    def delete(self, path: str) -> None:
        """Deletes the object if there is one."""
        try:
            self._call(lambda: obstore.delete(self._writer, path), path, StoreStateUnknown)
        except ObjectMissing:
            return

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects below the folder ``prefix``, in the order of their names, after the path ``start_after``.

        A hint, never a proof, because a listing may be older than the last write.
        """
        try:
            pages = self._call(
                lambda: obstore.list(self._reader, prefix or None, offset=start_after, chunk_size=1000), prefix
            )
            while page := self._call(lambda: next(pages, None), prefix):
                for meta in page:
                    yield ObjectInfo(meta["path"], meta["size"], meta["last_modified"])
        except ObjectMissing:
            return

    def folders(self, prefix: str) -> Sequence[str]:
        """The folders directly below the folder ``prefix``, as paths. A hint, like every listing."""
        try:
            found = self._call(lambda: obstore.list_with_delimiter(self._reader, prefix or None), prefix)
        except ObjectMissing:
            return []
        return sorted(str(folder).rstrip("/") for folder in found["common_prefixes"])

    def _put(self, path: str, data: Data, mode: Any) -> str:
        body = request_body(data)

        def send() -> Any:
            try:
                return obstore.put(self._writer, path, body, mode=mode, use_multipart=False)
            except AlreadyExistsError as error:
                # This is 409 or 412. A caller that reads the object back need not distinguish them.
                if mode == "create":
                    raise ObjectExists(f"{path}: {first_line(error)}") from None
                raise
            except PreconditionError:
                raise EtagMismatch(path) from None
            except BaseError as error:
                if mode != "overwrite" and is_not_implemented(error):
                    raise StoreUnsupported(
                        f"{self._where} has no conditional writes (If-None-Match and If-Match on PUT), without which "
                        "messages would be lost: use AWS S3, a recent SeaweedFS, or another store that has them "
                        f"({store_reason(error) or first_line(error)})"
                    ) from None
                raise

        try:
            return str(self._call(send, path, StoreStateUnknown)["e_tag"])
        except ObjectMissing:
            # Some stores answer this to If-Match on an object that does not exist.
            raise EtagMismatch(path) from None

    def _call(self, call: Callable[[], T], path: str, no_clear_answer: type[StoreUnavailable] = StoreUnavailable) -> T:
        try:
            return call()
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise BucketMissing(f"there is no bucket at {self._where}: create it, or change the url") from None
            raise ObjectMissing(path) from None
        except (BaseError, OSError) as error:
            if advice := rejection(error):
                reason = store_reason(error) or first_line(error)
                raise StoreDenied(f"{self._where} refuses {path[:_MAX_PATH]!r}: {advice} ({reason})") from None
            if is_denied(error):
                raise StoreDenied(
                    f"{self._where} refuses the credentials for {path!r}: set AWS_ACCESS_KEY_ID and "
                    f"AWS_SECRET_ACCESS_KEY to a key that may read, write, list and delete there "
                    f"({store_reason(error) or first_line(error)})"
                ) from None
            hint = DISK_FULL_HINT if may_be_disk_full(error) else ""
            raise no_clear_answer(
                f"no clear answer from {self._where} for {path!r}: {cause(error)}{hint}", path=path
            ) from None
        except (ValueError, TypeError) as error:
            raise InvalidRequest(f"the store has no path {path[:_MAX_PATH]!r}: {first_line(error)}") from None
        except BaseException as error:
            if not is_panic(error):
                raise
            raise no_clear_answer(
                f"no clear answer from {self._where} for {path!r}: the store's client failed", path=path
            ) from None


def open_store(
    url: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    proxy: str | None = None,
) -> Store:
    """Opens ``s3://bucket/prefix``, or ``memory://name`` (shared within the process; ``memory://`` is a new one).

    Sends nothing yet. Without an endpoint it is AWS. Credentials come from the arguments or, all of them, from the
    usual AWS_ variables; without any, requests are not signed. ``timeout`` limits one request, in seconds; ``proxy`` is
    the ``http://host:port`` of an HTTP proxy.
    Raises InvalidRequest if the url is invalid.
    """
    key = given_key(access_key, secret_key, session_token)
    options = S3Options(endpoint=endpoint, region=region or DEFAULT_REGION, key=key, timeout=timeout, proxy=proxy)
    writer, reader = create_clients(url, options)
    where = f"{url} ({endpoint})" if endpoint and url.startswith("s3:") else url
    return Store(url=url, where=where, writer=writer, reader=reader, options=options if url.startswith("s3:") else None)


def _read(store: Any, path: str, part: Any) -> tuple[memoryview, str, int, datetime]:
    # bytes() fetches the body, so its errors must be translated too.
    result = obstore.get(store, path, options={"range": part} if part else {})
    return memoryview(result.bytes()), str(result.meta["e_tag"]), result.meta["size"], result.meta["last_modified"]


def _read_tail(store: Any, path: str, nbytes: int) -> tuple[memoryview, str, int, datetime]:
    try:
        return _read(store, path, {"suffix": nbytes})
    except BaseError as error:
        if "status code: 416" not in str(error):
            raise
        return _read(store, path, None)  # an empty object has no range of bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where the store is and how to reach it. Configuration and messages carry this instead of an open store."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    proxy: str | None = None
    """``http://host:port`` through which the store is reached; None for a direct connection."""

    def __post_init__(self) -> None:
        """Raises InvalidRequest if an address has a password: addresses are logged, and the leader shows them."""
        for what, address in (("url", self.url), ("endpoint", self.endpoint or "")):
            if "@" in address.partition("//")[2].partition("/")[0]:
                raise InvalidRequest(
                    f"the filer's {what} has a user or a key before '@', where everybody would see it: set "
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
                )

    @classmethod
    def configured(
        cls,
        url: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        key: SigningKey | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> StoreSettings:
        """What a person configured. The AWS_ variables say what endpoint and region are, if nobody else does."""
        return cls(
            url=url,
            endpoint=endpoint or endpoint_of_environment(),
            region=region or region_of_environment(),
            timeout=timeout,
        ).signed_with(key)

    @classmethod
    def from_public_options(cls, url: str, options: dict[str, str]) -> StoreSettings:
        """The reverse of :meth:`to_public_options`; credentials come from the environment."""
        return cls(url=url, endpoint=options.get("endpoint"), region=options.get("region"))

    def signed_with(self, key: SigningKey | None) -> StoreSettings:
        """The same store with this key. None leaves the credentials to the environment."""
        if key is None:
            return self
        return replace(self, access_key=key.access_key, secret_key=key.secret_key, session_token=key.session_token)

    @property
    def has_credentials(self) -> bool:
        """Whether requests are signed, with the key here or with what the environment has."""
        return has_credentials(self.access_key)

    def to_public_options(self) -> dict[str, str]:
        """What clients may get besides the url: endpoint, region, and whether it takes credentials; never these."""
        options = {
            "endpoint": self.endpoint,
            "region": self.region,
            CREDENTIALS_OPTION: REQUIRED if self.has_credentials else None,
        }
        return {name: value for name, value in options.items() if value}

    def to_env(self) -> dict[str, str]:
        """The environment variables with which a child process opens the same store."""
        given = {
            "SMQ_FILER_URL": self.url,
            "SMQ_FILER_ENDPOINT": self.endpoint,
            "SMQ_FILER_REGION": self.region,
            "SMQ_FILER_TIMEOUT": str(self.timeout),
        }
        env = {name: value for name, value in given.items() if value}
        if self.access_key:  # an empty token replaces the one of this process, which belongs to another key
            env |= {
                "AWS_ACCESS_KEY_ID": self.access_key,
                "AWS_SECRET_ACCESS_KEY": self.secret_key or "",
                "AWS_SESSION_TOKEN": self.session_token or "",
            }
        return env

    def open(self) -> Store:
        return open_store(
            self.url,
            endpoint=self.endpoint,
            region=self.region,
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            timeout=self.timeout,
            proxy=self.proxy,
        )
