"""Publishes versions of apps atomically: uploads the rows, and lets the leader commit and complete them.

Nothing depends on this process after the commit.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from smq.delivery import AtomicReceipt, StagedFile
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.keys import KeylessPartitioner
from smq.producing.uploads.reference_publisher import ReferencePublisher
from smq.producing.uploads.upload_delivery import UploadDeliveryState
from smq.producing.uploads.uploaded_rows import UploadedFile
from smq.transport.schema_versions import SchemaVersions
from smq.transport.topic_view import TopicView
from smq_core.errors import DeliveryTimeout, ProducerFenced, ReferenceRejected, Unavailable
from smq_core.model.names import check_name
from smq_proto.v1 import publishes_pb2
from smq_proto.v1.publishes_pb2_grpc import PublishesStub
from smq_storage.process.locks import make_lock
from smq_storage.uploads.uploaded_files import read_upload

log = logging.getLogger(__name__)

# The bytes of rows without a key that get the same partition.
BATCH_BYTES = 1 << 20
SCHEMA_RETRY_SECONDS = 0.2

Uploads: TypeAlias = "list[UploadedFile]"
Staged: TypeAlias = "list[StagedFile]"


class _ClaimedApp(NamedTuple):
    """An app of a topic, and the token by which it was claimed."""

    uid: str
    app: str
    owner: str


def _claimed(view: TopicView, app: str, owner: str) -> _ClaimedApp:
    """Raises InvalidRequest for texts that no message has."""
    check_name("an app's name", app)
    check_name("an app's owner", owner)
    return _ClaimedApp(view.snapshot.topic.uid, app, owner)


class AtomicPublisher:
    """The atomic publishes of one client. Safe from many threads."""

    def __init__(self, publishes: PublishesStub) -> None:
        self._publishes = publishes
        self._owner = uuid.uuid4().hex
        """By which the leader knows this client."""
        self._lock = make_lock()
        self._versions: dict[_ClaimedApp, int] = {}
        """A version of each claimed app that is published. The leader may know a later one."""
        self._own_versions: dict[_ClaimedApp, int] = {}
        """The last version of each app that this client has published itself, or may have."""

    def stage(self, view: TopicView, upload: Callable[[ReferencePublisher], Uploads], timeout: float) -> Staged:
        """As :meth:`smq.Client.stage`, with what ``upload`` uploads."""
        return [_staged(file) for file in upload(self._uploads(view, timeout))]

    def last_version(self, view: TopicView, app: str, timeout: float) -> int | None:
        """As :meth:`smq.Client.last_version`."""
        claimed = _claimed(view, app, self._owner)
        version = self._claim_from_leader(view, claimed, False, time.monotonic() + timeout)
        return version if version >= 0 else None

    def publish(
        self,
        view: TopicView,
        app: str,
        version: int,
        upload: Callable[[ReferencePublisher], Uploads],
        timeout: float,
        *,
        staged: Sequence[StagedFile] = (),
        owner: str | None = None,
        one_off: bool = False,
    ) -> AtomicReceipt:
        """As :meth:`smq.Client.publish_atomically`, with what is ``staged`` and what ``upload`` uploads."""
        claimed = _claimed(view, app, owner or self._owner)
        receipt = self._publish(view, claimed, version, upload, timeout, staged, one_off)
        if receipt.already_published and self._own_versions.get(claimed) != version:
            log.warning(
                "version %d of app %r was published to %s before, and it is not the one that this client published "
                "last: the rows of this call are dropped. The app's last version is %d. Rows that were not published "
                "before need a higher version",
                version,
                app,
                view.name,
                receipt.last_version,
            )
        return receipt

    def _publish(
        self,
        view: TopicView,
        claimed: _ClaimedApp,
        version: int,
        upload: Callable[[ReferencePublisher], Uploads],
        timeout: float,
        staged: Sequence[StagedFile],
        one_off: bool,
    ) -> AtomicReceipt:
        deadline = time.monotonic() + timeout
        if version <= self._claim(view, claimed, one_off, deadline):
            return self._wait(view, claimed, version, [], uuid.uuid4().hex, deadline)  # nothing has to be uploaded
        request = uuid.uuid4().hex
        while True:
            files = [*staged, *self.stage(view, upload, timeout)]
            try:
                return self._wait(view, claimed, version, files, request, deadline)
            except ReferenceRejected as error:
                if error.field != "schema_version" or time.monotonic() >= deadline:
                    raise
                log.info("the schema of %s changed, so the rows are uploaded again", view.name)
                time.sleep(SCHEMA_RETRY_SECONDS)
                staged = self._stage_again(view, staged, timeout)

    def _stage_again(self, view: TopicView, staged: Sequence[StagedFile], timeout: float) -> Staged:
        """The same rows with the columns of the newest schema. Raises SchemaMismatch for values of dropped columns."""
        newest, uploads = SchemaVersions(view.snapshot).newest.version, self._uploads(view, timeout)
        found: Staged = []
        for file in staged:
            if file.schema_version == newest:
                found.append(file)
                continue
            rows = read_upload(view.store.open_for_uploads(timeout), view.snapshot.topic.uid, file.name)
            found += map(_staged, uploads.upload_table(rows, None))
        return found

    def _claim(self, view: TopicView, claimed: _ClaimedApp, one_off: bool, deadline: float) -> int:
        """A version of the app up to which all are published, -1 if none is known.

        An owner's first publish of an app takes the app over; later ones must find that it has it still.
        """
        with self._lock:
            known = self._versions.get(claimed)
        return known if known is not None else self._claim_from_leader(view, claimed, one_off, deadline)

    def _claim_from_leader(self, view: TopicView, claimed: _ClaimedApp, one_off: bool, deadline: float) -> int:
        """The app's last version, -1 if there is none."""
        request = publishes_pb2.ClaimAppRequest(topic=view.name, app=claimed.app, owner=claimed.owner, one_off=one_off)
        reply: publishes_pb2.AppReply = self._publishes.ClaimApp(request, timeout=_left(deadline))
        with self._lock:
            self._versions[claimed] = reply.version if reply.HasField("version") else -1
            return self._versions[claimed]

    def _wait(
        self, view: TopicView, claimed: _ClaimedApp, version: int, files: Staged, request: str, deadline: float
    ) -> AtomicReceipt:
        """Commits the version, and returns when its rows are in the log."""
        app = claimed.app
        message = publishes_pb2.AtomicPublishRequest(
            topic=view.name,
            app=app,
            owner=claimed.owner,
            version=version,
            request=request,
            files=[_file_to_pb(file) for file in files],
        )
        rows = sum(file.rows for file in files)
        committed, by_this_call, problem = False, False, ""
        while True:
            try:
                reply: publishes_pb2.AppReply = self._publishes.PublishAtomically(message, timeout=_left(deadline))
            except Unavailable as error:
                if not committed:
                    self._own_versions[claimed] = version
                    raise
                problem = error.message
            except ProducerFenced:
                if not by_this_call:
                    raise
                # A later version begins when this one is complete.
                return AtomicReceipt(app=app, version=version, already_published=False, rows=rows, last_version=version)
            else:
                # Once this call has committed the version, "already published" is about a later version.
                by_this_call = by_this_call or not reply.already_published
                if by_this_call:
                    self._own_versions[claimed] = version
                if reply.complete:
                    rows, last = rows if by_this_call else 0, max(version, reply.version)
                    return AtomicReceipt(
                        app=app, version=version, already_published=not by_this_call, rows=rows, last_version=last
                    )
                committed, problem = True, reply.problem
            if time.monotonic() >= deadline:
                raise DeliveryTimeout(
                    f"version {version} of app {app!r} is committed, but not all its rows are in the log yet"
                    f"{f' ({problem})' if problem else ''}. The leader completes it; publish the version again to wait "
                    "for that"
                )

    def _uploads(self, view: TopicView, timeout: float) -> ReferencePublisher:
        return ReferencePublisher(
            view=view,
            producer=self._owner,
            epoch=0,
            keyless=KeylessPartitioner(view.snapshot.topic.spec.partitions, random.randrange(1 << 30)),
            batch_bytes=BATCH_BYTES,
            timeout=timeout,
            lock=make_lock(),
            encoder=_NewestEncoder(view),
            submit=_submit_nothing,
        )


class _NewestEncoder:
    """Returns the encoder for the topic's newest schema, the same one until the schema changes."""

    def __init__(self, view: TopicView) -> None:
        self._view = view
        self._encoder: BatchEncoder | None = None

    def __call__(self) -> BatchEncoder:
        snapshot = self._view.snapshot
        newest = SchemaVersions(snapshot).newest
        if self._encoder is None or self._encoder.version != newest.version:
            self._encoder = BatchEncoder(snapshot.topic, newest)
        return self._encoder


def _submit_nothing(files: Sequence[UploadedFile], states: Sequence[UploadDeliveryState]) -> None:
    raise AssertionError("the leader publishes the uploads of an atomic publish")


def _staged(file: UploadedFile) -> StagedFile:
    return StagedFile(
        name=file.name,
        etag=file.etag,
        rows=int(file.index.starts[-1]),
        bytes=file.size,
        timestamp_min=int(file.index.earliest.min()),
        timestamp_max=int(file.index.latest.max()),
        schema_version=file.schema_version,
    )


def _file_to_pb(file: StagedFile) -> publishes_pb2.AtomicPublishRequest.File:
    return publishes_pb2.AtomicPublishRequest.File(
        upload=file.name,
        etag=file.etag,
        rows=file.rows,
        bytes=file.bytes,
        timestamp_min=file.timestamp_min,
        timestamp_max=file.timestamp_max,
        schema_version=file.schema_version,
    )


def _left(deadline: float) -> float:
    return max(0.05, deadline - time.monotonic())
