"""URLs, listings and temporary keys for readers that have no credentials for the filer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import islice

from smq_core.errors import InvalidRequest, StoreUnsupported
from smq_core.model.entities import SECOND, Topic
from smq_core.model.names import shown
from smq_operator.api.uploads import URL_LIFETIME
from smq_proto.v1 import topics_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.store import Store

# In one call: an answer has half a megabyte then, and takes 30 ms to sign.
MAX_PATHS = 1000
# Temporary keys count until they end, whatever happens to the right. A store makes none for a shorter time.
MIN_KEY_SECONDS, MAX_KEY_SECONDS = 900, 3600
# Of a listing in one answer.
MAX_LISTED = 1000


def check_paths(topic: Topic, files: Sequence[str]) -> None:
    """Raises InvalidRequest unless all of these are files of the topic that its readers need."""
    if len(files) > MAX_PATHS:
        raise InvalidRequest(f"a call may name {MAX_PATHS:,} files, not {len(files):,}: make several calls")
    for path in files:
        if not paths.is_for_readers(topic.name, topic.uid, path):
            raise InvalidRequest(f"{shown(path)} is not a file of {topic.name} that its readers need")


def check_lifetime(seconds: int) -> None:
    """Raises InvalidRequest unless keys may live that long."""
    if not MIN_KEY_SECONDS <= seconds <= MAX_KEY_SECONDS:
        raise InvalidRequest(
            f"keys of the filer live for {MIN_KEY_SECONDS} to {MAX_KEY_SECONDS} seconds, not {seconds}"
        )


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


def session_keys(store: Store, topic: Topic, role: str, seconds: int) -> topics_pb2.FilerKeys:
    """Keys for the files of the topic, those of its groups and pins included.

    Raises StoreUnsupported if no role is configured.
    """
    if not role:
        raise StoreUnsupported(
            "this release hands out no keys of the filer: set filer.sessionRole of the chart (--filer-session-role of "
            'the operator), or read with a consumer, `smq consume` or Spark\'s format("smq"), which need none'
        )
    folders = (
        paths.topic_folder(topic.name, topic.uid),
        paths.uploads_folder(topic.uid),
        paths.large_values_folder(topic.uid),
    )
    files = (paths.current(topic.name),)
    found = store.session_keys(role, f"smq-{topic.uid}"[:64], folders, files, timedelta(seconds=seconds))
    return topics_pb2.FilerKeys(
        access_key=found.key.access_key,
        secret_key=found.key.secret_key,
        session_token=found.key.session_token,
        expires_at=round(found.expires_at.timestamp() * SECOND),
    )
