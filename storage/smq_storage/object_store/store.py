"""The object store as the rest of the project uses it: few calls, few errors.

Only this module, ``direct_reads.py``, ``clients.py``, ``failures.py`` and ``presigned/puts.py`` import obstore.

Writes are never retried here and never sent in parts, because ``conditional_writes.py`` finds out what became of a
write whose answer was lost, and a retry inside the client would make that impossible. Reads are tried three times.

Paths are relative to the store's root, without a leading slash. All calls block; all are safe from many threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from smq_core.errors import InvalidRequest, StoreStateUnknown, StoreUnsupported
from smq_storage.object_store.clients import (
    DEFAULT_REGION,
    DEFAULT_TIMEOUT_SECONDS,
    S3Options,
    create_clients,
    endpoint_of_environment,
    region_of_environment,
)
from smq_storage.object_store.credentials import given_key, has_credentials, signing_key
from smq_storage.object_store.direct_reads import DirectReads, Reads
from smq_storage.object_store.failures import call_store, first_line, is_not_implemented, store_reason
from smq_storage.object_store.presigned.reads import PresignedReads, ReadUrls
from smq_storage.object_store.presigned.session_keys import SessionKeys, SessionRequest, request_session_keys
from smq_storage.object_store.presigned.urls import PresignedPut, SigningKey, create_only_headers, presign
from smq_storage.object_store.request_bodies import Data, request_body
from smq_storage.object_store.results import (
    EtagMismatch,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectTail,
    StoredObject,
)

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

    def __init__(self, *, url: str, where: str, writer: Any, reads: Reads, options: S3Options | None = None) -> None:
        self.url = url
        self._where = where
        self._writer = writer
        self._reads = reads
        self._options = options

    def __repr__(self) -> str:
        return f"Store({self._where})"

    @property
    def lists_uploads(self) -> bool:
        """Whether a listing of the folder of uploads has those that are there. Otherwise it is empty."""
        return self._reads.lists_uploads

    def get(self, path: str) -> StoredObject:
        """The whole object. Raises ObjectMissing."""
        found = self._reads.read(path)
        return StoredObject(found.data, found.etag)

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> memoryview:
        """Bytes ``start .. stop - 1``, fewer if the object ends before.

        Raises ObjectMissing, and EtagMismatch if the object that answered does not have the etag that is given.
        """
        # The answer has the etag, so If-Match is not needed, which some stores ignore.
        found = self._reads.read(path, (start, stop))
        if etag is not None and found.etag != etag:
            raise EtagMismatch(path)
        return found.data

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        """The last ``nbytes`` bytes (all of them if the object is smaller). Raises ObjectMissing."""
        return self._reads.read_tail(path, nbytes)

    def head(self, path: str) -> ObjectInfo:
        """Size and time of an object. Raises ObjectMissing."""
        return self._reads.head(path)

    def expect(self, paths: Iterable[str]) -> None:
        """Says that these objects will be read, in this order. It speeds reads up that prepare their requests."""
        self._reads.expect(paths)

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

    def presign_gets(self, paths: Sequence[str], lifetime: timedelta) -> Sequence[str]:
        """A URL for each object, with which anybody reads it within ``lifetime``. Sends nothing.

        Raises StoreUnsupported if requests to this store are not signed.
        """
        key = self._options.key if self._options is not None else None
        if self._options is None or not has_credentials(key.access_key if key is not None else None):
            raise StoreUnsupported(f"requests to {self._where} are not signed: readers need no URLs and read directly")
        return list(obstore.sign(self._writer, "GET", list(paths), lifetime)) if paths else []

    def session_keys(
        self,
        role: str,
        name: str,
        folders: Sequence[str],
        files: Sequence[str],
        lifetime: timedelta,
        now: datetime | None = None,
    ) -> SessionKeys:
        """Temporary keys that read these files and folders and list the folders, and do nothing else.

        ``role`` and ``name`` are those of SessionRequest. Raises StoreUnsupported if there is no key to ask with,
        StoreDenied, StoreUnavailable.
        """
        options = self._options
        if options is None:
            raise StoreUnsupported(f"{self._where} has no keys: readers read there directly")
        bucket, _, prefix = self.url.removeprefix("s3://").rstrip("/").partition("/")
        prefix = f"{prefix}/" if prefix else ""
        request = SessionRequest(
            role=role,
            name=name,
            bucket=bucket,
            folders=tuple(f"{prefix}{folder}/" for folder in folders),
            files=tuple(f"{prefix}{file}" for file in files),
            lifetime=lifetime,
        )
        return request_session_keys(request, signing_key(options.key, self._where), options, now or datetime.now(UTC))

    def delete(self, path: str) -> None:
        """Deletes the object if there is one."""
        try:
            self._call(lambda: obstore.delete(self._writer, path), path)
        except ObjectMissing:
            return

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects below the folder ``prefix``, in the order of their names, after the path ``start_after``.

        A hint, never a proof, because a listing may be older than the last write.
        """
        return self._reads.list(prefix, start_after)

    def folders(self, prefix: str) -> Sequence[str]:
        """The folders directly below the folder ``prefix``, as paths. A hint, like every listing."""
        return self._reads.folders(prefix)

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
            return str(self._call(send, path)["e_tag"])
        except ObjectMissing:
            # Some stores answer this to If-Match on an object that does not exist.
            raise EtagMismatch(path) from None

    def _call(self, call: Callable[[], T], path: str) -> T:
        return call_store(call, path, self._where, StoreStateUnknown)


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
    read_urls: ReadUrls | None = None,
) -> Store:
    """Opens ``s3://bucket/prefix``, or ``memory://name`` (shared within the process; ``memory://`` is a new one).

    Sends nothing yet. Without an endpoint it is AWS. Credentials come from the arguments or, all of them, from the
    usual AWS_ variables; without any, requests are not signed. ``timeout`` limits one request, in seconds; ``proxy`` is
    the ``http://host:port`` of an HTTP proxy. With ``read_urls`` reads use presigned URLs and no credentials.
    Raises InvalidRequest if the url is invalid.
    """
    key = given_key(access_key, secret_key, session_token)
    options = S3Options(endpoint=endpoint, region=region or DEFAULT_REGION, key=key, timeout=timeout, proxy=proxy)
    writer, reader = create_clients(url, options)
    where = f"{url} ({endpoint})" if endpoint and url.startswith("s3:") else url
    reads = PresignedReads(read_urls, where, options) if read_urls is not None else DirectReads(reader, where)
    return Store(url=url, where=where, writer=writer, reads=reads, options=options if url.startswith("s3:") else None)


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
    needs_credentials: bool = False
    """Whether the store is known to take only signed requests."""

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
        needs = options.get(CREDENTIALS_OPTION) == REQUIRED
        return cls(url=url, endpoint=options.get("endpoint"), region=options.get("region"), needs_credentials=needs)

    def signed_with(self, key: SigningKey | None) -> StoreSettings:
        """The same store with this key. None leaves the credentials to the environment."""
        if key is None:
            return self
        return replace(self, access_key=key.access_key, secret_key=key.secret_key, session_token=key.session_token)

    @property
    def has_credentials(self) -> bool:
        """Whether requests are signed, with the key here or with what the environment has."""
        return has_credentials(self.access_key)

    @property
    def lacks_credentials(self) -> bool:
        """Whether the store takes only signed requests, and this process can sign none."""
        return self.needs_credentials and not self.has_credentials

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

    def open(self, read_urls: ReadUrls | None = None) -> Store:
        """With ``read_urls`` reads use presigned URLs and no credentials."""
        return open_store(
            self.url,
            endpoint=self.endpoint,
            region=self.region,
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            timeout=self.timeout,
            proxy=self.proxy,
            read_urls=read_urls,
        )
