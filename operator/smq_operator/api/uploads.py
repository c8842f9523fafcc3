"""Signs upload URLs for producers that have no credentials for the filer."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from smq_core.errors import InvalidRequest, Unavailable, UnknownTopic
from smq_operator.api.errors import unary_handler
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_proto.v1 import leader_pb2 as lpb
from smq_storage.catalog import paths
from smq_storage.object_store.store import Store

log = structlog.get_logger(__name__)

# A PUT must begin within this time. Longer than the clocks of a leader and a store usually differ.
URL_LIFETIME = timedelta(minutes=15)
# In one call, so that an answer stays small and a call short.
MAX_FILES = 100
# What S3 takes in one PUT.
MAX_FILE_BYTES = 5 << 30


@dataclass(frozen=True, slots=True)
class UploadService:
    """SignUploads."""

    readiness: Readiness
    topics: TopicDirectory
    store: StorePool

    @unary_handler
    async def SignUploads(self, request: lpb.SignUploadsRequest) -> lpb.SignUploadsReply:
        managed = self.topics.topic(request.topic)
        topic = managed.topic
        if topic is None:
            raise Unavailable(f"the leader has not read {managed.name} yet: try again")
        if managed.deleted or topic.uid != request.uid:
            raise UnknownTopic(f"the topic {managed.name} with the uid {request.uid!r} was deleted", topic=managed.name)
        _check(request)
        uploads = await self.store.run(_sign, topic.uid, request)
        log.debug("uploads.signed", topic=managed.name, producer=request.producer, files=len(uploads))
        return lpb.SignUploadsReply(uploads=uploads)


def _check(request: lpb.SignUploadsRequest) -> None:
    if len(request.files) > MAX_FILES:
        raise InvalidRequest(f"a call may name {MAX_FILES} files, not {len(request.files)}: make several calls")
    if not request.producer:
        raise InvalidRequest("the producer's id is missing: the names of uploads contain it")
    for number, file in enumerate(request.files):
        if not 0 < file.size <= MAX_FILE_BYTES:
            raise InvalidRequest(f"files[{number}] has {file.size} bytes, allowed are 1 to {MAX_FILE_BYTES}")
        if len(file.sha256) != 32:
            raise InvalidRequest(f"files[{number}]: a SHA-256 digest has 32 bytes, not {len(file.sha256)}")


def _sign(store: Store, topic_uid: str, request: lpb.SignUploadsRequest) -> Sequence[lpb.SignUploadsReply.Upload]:
    uploads = []
    for file in request.files:
        name = paths.upload_file_name(request.producer, request.epoch, request.attempt, uuid.uuid4().hex)
        put = store.presign_put_new(paths.uploaded_file(topic_uid, name), file.size, file.sha256, URL_LIFETIME)
        uploads.append(lpb.SignUploadsReply.Upload(name=name, url=put.url, headers=put.headers))
    return uploads
