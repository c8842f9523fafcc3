"""Signs URLs for readers that have no credentials for the filer, and lists folders for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from smq_core.errors import InvalidRequest
from smq_core.model.entities import SECOND, Topic
from smq_core.model.names import shown
from smq_operator.api.uploads import URL_LIFETIME
from smq_proto.v1 import topics_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.store import Store

# In one call: an answer has half a megabyte then, and takes 30 ms to sign.
MAX_PATHS = 1000
# Of a listing in one answer.
MAX_LISTED = 1000


def check_paths(topic: Topic, files: Sequence[str]) -> None:
    """Raises InvalidRequest unless all of these are files of the topic that its readers need."""
    if len(files) > MAX_PATHS:
        raise InvalidRequest(f"a call may name {MAX_PATHS:,} files, not {len(files):,}: make several calls")
    for path in files:
        if not paths.is_for_readers(topic.name, topic.uid, path):
            raise InvalidRequest(f"{shown(path)} is not a file of {topic.name} that its readers need")


def check_folder(topic: Topic, folder: str) -> None:
    """Raises InvalidRequest unless this is a folder of the topic that its readers may list."""
    if not paths.is_folder_for_readers(topic.name, topic.uid, folder):
        raise InvalidRequest(f"{shown(folder)} is not a folder of {topic.name} that its readers need")


def sign_reads(store: Store, files: Sequence[str]) -> Sequence[str]:
    """One URL for each file."""
    return store.presign_gets(files, URL_LIFETIME)


def list_files(store: Store, folder: str, after: str) -> Sequence[topics_pb2.ListFilesReply.File]:
    """The first files there whose paths come after ``after``, or the very first ones if that is empty."""
    return [
        topics_pb2.ListFilesReply.File(path=it.path, size=it.size, modified=round(it.modified.timestamp() * SECOND))
        for it in islice(store.list(folder, after or None), MAX_LISTED)
    ]
