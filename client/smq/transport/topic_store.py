"""Where the files of a topic are: as the client was given it, or else as leader and brokers say."""

from __future__ import annotations

from dataclasses import replace
from typing import IO

from smq.transport.dialer import Dialer
from smq.transport.read_urls import ReadUrls, SigningLeader
from smq.transport.upload_modes import UploadMode
from smq_core.errors import StoreUnavailable
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.presigned.urls import SigningKey
from smq_storage.object_store.store import Store, StoreSettings

# For one PUT, so that slow connections can upload a large file.
UPLOAD_TIMEOUT_SECONDS = 120.0


class TopicStore:
    """Safe from many threads; ``learn`` is called by one. ``leader`` can sign uploads and reads, if there is one."""

    def __init__(
        self,
        *,
        settings: StoreSettings | None,
        key: SigningKey | None,
        dialer: Dialer,
        uploads: UploadMode,
        leader: SigningLeader | None,
    ) -> None:
        self._settings = settings
        self._key = key
        self._dialer = dialer
        self._uploads = uploads
        self._leader = leader
        self._read_urls: ReadUrls | None = None
        """Set if this client can sign no reads, and the leader does."""
        self._store: Store | None = None

    def learn(self, reply: pb.LocateReply) -> None:
        """An address that is known stays."""
        if not reply.store_url:
            return
        located = StoreSettings.from_public_options(reply.store_url, dict(reply.store_options))
        if self._settings is None:
            self._settings = self._dialer.store(located).signed_with(self._key)
        elif located.needs_credentials and not self._settings.needs_credentials:
            self._settings = replace(self._settings, needs_credentials=True)
        self._sign_reads_of(reply.topic.name, reply.topic.uid)

    def _sign_reads_of(self, topic: str, uid: str) -> None:
        """Whoever is outside of a secure release reads with credentials only, as before it was secure."""
        is_needed = self.settings.lacks_credentials and self._dialer.security is not None
        if not is_needed or self._leader is None:
            return
        if self._read_urls is None or self._read_urls.uid != uid:
            self._read_urls = ReadUrls(self._leader, topic, uid)
            self._store = None

    @property
    def is_known(self) -> bool:
        return self._settings is not None

    @property
    def settings(self) -> StoreSettings:
        """Where the files are, for other processes. Raises StoreUnavailable if that is not known."""
        if self._settings is None:
            raise StoreUnavailable(
                "the address of the filer is not known; pass filer_url (and filer_endpoint) to connect()"
            )
        return self._settings

    def open(self) -> Store:
        """The store; every call returns the same one. Raises StoreUnavailable as ``settings``."""
        if self._store is None:  # two threads may both open it, which does no harm
            self._store = self.settings.open(self._read_urls)
        return self._store

    def open_for_uploads(self, timeout: float = UPLOAD_TIMEOUT_SECONDS) -> Store:
        """A store for large files, which take longer than other requests. Raises StoreUnavailable as ``settings``.

        A request may take ``timeout`` seconds, or UPLOAD_TIMEOUT_SECONDS if that is more.
        """
        settings = self.settings
        seconds = max(settings.timeout, UPLOAD_TIMEOUT_SECONDS, timeout)
        return replace(settings, timeout=seconds).open(self._read_urls)

    def open_url(self, url: str) -> IO[bytes]:
        """Opens an object of any bucket of the filer, by its ``s3://bucket/path``, for reads.

        Raises FileNotFoundError, StoreDenied, StoreUnavailable, and InvalidRequest if it is no such URL.
        """
        # Imported here because it takes Arrow's Parquet reader, which most programs with a view do not need.
        from smq_storage.chunks.object_files import open_object

        return open_object(self.settings, url)

    @property
    def signs_uploads(self) -> bool:
        """Whether uploads need URLs that the leader signs; with ``auto`` only if this client cannot sign requests."""
        if self._uploads != "auto":
            return self._uploads == "presigned"
        return self._settings is not None and self._settings.lacks_credentials and self._leader is not None
