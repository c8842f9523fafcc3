"""URLs with which a client without credentials for the filer reads the files of one topic. The leader signs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any, Protocol

from smq_core.errors import StoreDenied, StoreUnavailable
from smq_core.model.entities import SECOND
from smq_proto.v1 import topics_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.results import ObjectInfo
from smq_storage.process.locks import make_lock

# How many URLs a call requests: that of the file that is needed now, and of those that will be read next.
AHEAD = 100
# A URL is not used in the last part of its life: clocks of leader and store may differ, and a request takes a while.
LAST_PART = 0.2
# What is kept in memory, at about 600 bytes for a URL, and for the order of the files.
MAX_URLS, MAX_EXPECTED = 4_000, 100_000
# An answer with as many files may have others after them.
FULL_LIST = 1000


class SigningLeader(Protocol):
    """What is needed of the leader's service."""

    def SignReads(self, request: topics_pb2.SignReadsRequest) -> topics_pb2.SignReadsReply: ...

    def ListFiles(self, request: topics_pb2.ListFilesRequest) -> topics_pb2.ListFilesReply: ...


@dataclass(frozen=True, slots=True)
class _SignedUrl:
    url: str = field(repr=False)
    good_until: float


class ReadUrls:
    """Safe from many threads. ``now`` is in seconds of a clock that never goes back.

    Each method but ``expect`` raises Unavailable while no leader answers, PermissionDenied and Unauthenticated (the
    client may not read the topic any more), UnknownTopic, and StoreDenied for files that take credentials.
    """

    def __init__(self, leader: SigningLeader, topic: str, uid: str, now: Callable[[], float] = time.monotonic) -> None:
        self._leader = leader
        self._topic = topic
        self.uid = uid
        self._now = now
        self._lock = make_lock()
        self._urls: dict[str, _SignedUrl] = {}
        """By path; those that were signed last are the last ones."""
        self._following: dict[str, str] = {}
        """What will be read after a file."""

    def url(self, path: str) -> str:
        """A URL for reads of this file. Signs those of the next files, too, if there is none."""
        if not paths.is_for_readers(self._topic, self.uid, path):
            raise _denied(path)
        with self._lock:
            found = self._urls.get(path)
            if found is not None and self._now() < found.good_until:
                return found.url
            wanted = self._next_unsigned(path)
        return self._sign(wanted)

    def renew(self, path: str, refused: str) -> str:
        """Another URL, because the store has refused this one."""
        with self._lock:
            found = self._urls.get(path)
            if found is not None and found.url == refused:
                # The others were signed with it, by the same key and clock.
                self._urls.clear()
        return self.url(path)

    def list(self, folder: str, start_after: str | None) -> Iterator[ObjectInfo]:
        """The files of a folder. There are none in those of uploads, which nobody may list."""
        if folder in (paths.uploads_folder(self.uid), paths.large_values_folder(self.uid)):
            return
        if folder == paths.topic_folder(self._topic, self.uid):  # to find out whether its layout is really gone
            raise StoreUnavailable(
                f"the filer answered that a file of {self._topic} is gone, which the leader has. If that lasts, set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key of the filer: `smq topic verify` then says which"
            )
        if not paths.is_folder_for_readers(self._topic, self.uid, folder):
            raise _denied(folder)
        after = start_after or ""
        while True:
            request = topics_pb2.ListFilesRequest(topic=self._topic, uid=self.uid, folder=folder, after=after)
            files = self._leader.ListFiles(request).files
            self.expect(it.path for it in files)
            for it in files:
                yield ObjectInfo(it.path, it.size, datetime.fromtimestamp(it.modified / SECOND, UTC))
            if len(files) < FULL_LIST:
                return
            after = files[-1].path

    def expect(self, files: Iterable[str]) -> None:
        """These will be read, in this order."""
        following = list(pairwise(files))  # without the lock: they may come from a listing
        with self._lock:
            self._following |= following
            _forget_first(self._following, MAX_EXPECTED)

    def _next_unsigned(self, path: str) -> Sequence[str]:
        """The path, and those that follow it and have no URL that stays good. The caller holds the lock."""
        wanted, now = [path], self._now()
        following = self._following.get(path)
        while following is not None and len(wanted) < AHEAD:
            found = self._urls.get(following)
            if following in wanted or (found is not None and now < found.good_until):
                break
            wanted.append(following)
            following = self._following.get(following)
        return wanted

    def _sign(self, files: Sequence[str]) -> str:
        """The URL of the first file. Nobody waits for this call who has a URL."""
        began = self._now()
        request = topics_pb2.SignReadsRequest(topic=self._topic, uid=self.uid, paths=files)
        reply = self._leader.SignReads(request)
        good_until = began + reply.lifetime_seconds * (1 - LAST_PART)
        with self._lock:
            for path, url in zip(files, reply.urls, strict=True):
                self._urls.pop(path, None)
                self._urls[path] = _SignedUrl(url, good_until)
            _forget_first(self._urls, MAX_URLS)
        return reply.urls[0]


def _denied(path: str) -> StoreDenied:
    return StoreDenied(
        f"the leader signs no URL for {path!r}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key of the filer "
        "that may read, write and list there"
    )


def _forget_first(known: dict[str, Any], limit: int) -> None:
    for path in list(islice(known, max(0, len(known) - limit))):
        del known[path]
