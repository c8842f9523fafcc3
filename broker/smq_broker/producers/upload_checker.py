"""Checks references and the names of large values against the objects in the filer.

A reference takes one or two small requests whatever the file's size, and a large value one. A large value is not read:
readers compare it with the checksum in its row.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime

from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import CorruptChunk, InvalidRequest, StoreDenied, StoreUnavailable
from smq_core.model.entities import SECOND, Micros
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionRows
from smq_core.model.reference import Reference
from smq_core.replica.log_entries import BatchId
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.catalog import paths
from smq_storage.catalog.filer_time import read_filer_time
from smq_storage.object_store.store import ObjectMissing, Store
from smq_storage.process.locks import make_lock
from smq_storage.uploads.reference_rules import check_age, check_reference, check_upload, rejected_upload
from smq_storage.uploads.uploaded_files import StoredUpload, read_upload_footer

# An upload has rows of several segments, so its footer is needed several times within a short time.
REMEMBERED_UPLOADS = 64
# Each name is kept in the tail, in the chunk's footer and in the file list, and takes a request.
MAX_LARGE_VALUES_PER_BATCH = 64
RETRY_SECONDS = 0.2
# The filer's time is read so often; in between, this process's monotonic clock continues it.
FILER_TIME_SECONDS = 60.0


class UploadChecker:
    """Safe from many threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = make_lock()
        self._footers: OrderedDict[tuple[str, str], StoredUpload] = OrderedDict()
        self._filer_time: tuple[Micros, float] | None = None

    def check_before_append(
        self,
        hosted: HostedSegment,
        id_: BatchId,
        uploads: Reference | Sequence[str],
        require_open: Callable[[], None],
    ) -> PartitionRows:
        """Checks what a batch refers to: a reference as :meth:`check`, or the names of large values.

        Each object of a large value must exist, and be young enough. Nothing is checked if the batch is a repeat or the
        segment is not open, which ``append`` decides: a repeat is in the log, even if its upload is too old by now.
        Waits while the filer does not answer; ``require_open`` raises an error to end that.

        Returns how many messages of each partition a reference has that was checked.
        Raises ReferenceRejected, and InvalidRequest if these are more names than a batch may have.
        """
        if isinstance(uploads, Reference):
            name = uploads.upload
        else:
            name = uploads[0]
            if len(uploads) > MAX_LARGE_VALUES_PER_BATCH:
                raise InvalidRequest(
                    f"a batch has {len(uploads)} large values, at most {MAX_LARGE_VALUES_PER_BATCH} are accepted"
                )
        while True:
            with hosted as machine:
                if machine.state is not ReplicaState.OPEN or not machine.is_new(id_):
                    return ()
            try:
                return self._check(hosted, uploads)
            except StoreDenied:
                raise
            except StoreUnavailable as error:
                hosted.log.warning("upload.store_unavailable", upload=name, error=error.message)
                hosted.fenced.wait(RETRY_SECONDS)
            require_open()

    def _check(self, hosted: HostedSegment, uploads: Reference | Sequence[str]) -> PartitionRows:
        if isinstance(uploads, Reference):
            return self.check(hosted, uploads)
        for name in uploads:
            self._check_large_value(hosted, name)
        return ()

    def check(self, hosted: HostedSegment, reference: Reference) -> PartitionRows:
        """Returns how many messages of each partition the reference has.

        Raises ReferenceRejected if the segment must not take it, and StoreUnavailable.
        """
        segment = hosted.segment
        check_reference(reference, segment.name, segment.range, segment.schema_version)
        upload = self._find(hosted, reference)
        check_upload(reference, upload.parsed, upload.size, hosted.topic.uid, hosted.wire.message)
        check_age(reference.upload, self._age(upload.modified), hosted.max_upload_age)
        named = KeyRange(reference.partition_min, reference.partition_max + 1)
        return tuple((it, rows) for it, rows in upload.parsed.footer.partitions if rows and it in named)

    def _check_large_value(self, hosted: HostedSegment, name: str) -> None:
        try:
            found = self._store.head(paths.large_value(hosted.topic.uid, name))
        except InvalidRequest as error:
            raise rejected_upload(name, error.message) from None
        except ObjectMissing:
            raise rejected_upload(name, "there is no such object") from None
        check_age(name, self._age(found.modified), hosted.max_upload_age)

    def _find(self, hosted: HostedSegment, reference: Reference) -> StoredUpload:
        try:
            path = paths.uploaded_file(hosted.topic.uid, reference.upload)
            upload = self._remembered(path, reference.etag) or self._read(path)
        except (InvalidRequest, CorruptChunk) as error:
            raise rejected_upload(reference.upload, error.message) from None
        except ObjectMissing:
            raise rejected_upload(reference.upload, "there is no such file") from None
        if upload.etag != reference.etag:
            problem = f"the file has the etag {upload.etag}, expected {reference.etag}"
            raise rejected_upload(reference.upload, problem)
        return upload

    def _remembered(self, path: str, etag: str) -> StoredUpload | None:
        """The footer that was read before, if the file is still the same."""
        with self._lock:
            upload = self._footers.get((path, etag))
        if upload is None:
            return None
        info = self._store.head(path)
        return upload if (info.size, info.modified) == (upload.size, upload.modified) else None

    def _read(self, path: str) -> StoredUpload:
        upload = read_upload_footer(self._store, path)
        with self._lock:
            self._footers[path, upload.etag] = upload
            while len(self._footers) > REMEMBERED_UPLOADS:
                self._footers.popitem(last=False)
        return upload

    def _age(self, modified: datetime) -> Micros:
        return self._now() - round(modified.timestamp() * SECOND)

    def _now(self) -> Micros:
        """The filer's time, which is also that of the uploads."""
        known = self._filer_time
        if known is None or time.monotonic() - known[1] > FILER_TIME_SECONDS:
            at = time.monotonic()
            known = self._filer_time = read_filer_time(self._store), at
        return known[0] + round((time.monotonic() - known[1]) * SECOND)
