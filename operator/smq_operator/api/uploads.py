"""Signs upload URLs for producers that have no credentials for the filer."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta

import structlog

from smq_core.errors import InvalidRequest
from smq_proto.v1 import topics_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.store import Store

log = structlog.get_logger(__name__)

# A PUT must begin within this time. Longer than the clocks of a leader and a store usually differ.
URL_LIFETIME = timedelta(minutes=15)
# In one call, so that an answer stays small and a call short.
MAX_FILES = 100
# What S3 takes in one PUT.
MAX_FILE_BYTES = 5 << 30


def check_files(request: topics_pb2.SignUploadsRequest) -> None:
    """Raises InvalidRequest for files that no store takes, and for too many of them."""
    if len(request.files) > MAX_FILES:
        raise InvalidRequest(f"a call may name {MAX_FILES} files, not {len(request.files)}: make several calls")
    if not request.producer:
        raise InvalidRequest("the producer's id is missing: the names of uploads contain it")
    for number, file in enumerate(request.files):
        if not 0 < file.size <= MAX_FILE_BYTES:
            raise InvalidRequest(f"files[{number}] has {file.size} bytes, allowed are 1 to {MAX_FILE_BYTES}")
        if len(file.sha256) != 32:
            raise InvalidRequest(f"files[{number}]: a SHA-256 digest has 32 bytes, not {len(file.sha256)}")


def sign_files(
    store: Store, topic_uid: str, request: topics_pb2.SignUploadsRequest
) -> Sequence[topics_pb2.SignUploadsReply.Upload]:
    """One URL for each file. An upload gets a new name, and a large value has that of its message.

    Raises InvalidRequest for a name that is not one of a large value.
    """
    uploads = []
    for file in request.files:
        name = file.large_value
        if name:
            path = paths.large_value(topic_uid, name)
        else:
            name = paths.upload_file_name(request.producer, request.epoch, request.attempt, uuid.uuid4().hex)
            path = paths.uploaded_file(topic_uid, name)
        put = store.presign_put_new(path, file.size, file.sha256, URL_LIFETIME)
        uploads.append(topics_pb2.SignUploadsReply.Upload(name=name, url=put.url, headers=put.headers))
    return uploads
