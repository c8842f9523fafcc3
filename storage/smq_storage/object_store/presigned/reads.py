"""Reads without credentials: each request has a presigned URL, which somebody with credentials has made.

The requests are made by http.client. A client of obstore has one address, so each URL would take a new one (8 ms), and
new connections. Libraries with pools of connections log the URLs, which are secrets until they expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Protocol

from smq_core.backoff import Backoff
from smq_core.errors import StoreDenied, StoreUnavailable
from smq_storage.object_store.clients import READ_RETRIES, S3Options
from smq_storage.object_store.direct_reads import FoundObject, Range
from smq_storage.object_store.failures import bucket_missing, reason_in
from smq_storage.object_store.presigned.connections import Answer, Connections, NoAnswer
from smq_storage.object_store.results import ObjectInfo, ObjectMissing, ObjectTail
from smq_storage.thread_runtime import sleep

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 1.0

# Of the path in an error, in characters.
_MAX_PATH = 200
_DENIED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_FOUND = (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)


class ReadUrls(Protocol):
    """Where the URLs come from. Safe from many threads; each method but ``expect`` may raise an SmqError."""

    def url(self, path: str) -> str:
        """A URL for GETs of this object, which is good for a while."""
        ...

    def renew(self, path: str, refused: str) -> str:
        """Another one, because the store has refused that one."""
        ...

    def list(self, folder: str, start_after: str | None) -> Iterator[ObjectInfo]:
        """The objects below a folder, in the order of their names."""
        ...

    def expect(self, files: Iterable[str]) -> None:
        """These will be read, in this order."""
        ...


class PresignedReads:
    """``where`` names the store in errors, which have no URL: its signature is a secret."""

    lists_uploads = False

    def __init__(self, urls: ReadUrls, where: str, options: S3Options) -> None:
        self._urls = urls
        self._where = where
        self._connections = Connections(options.timeout, options.proxy)

    def read(self, path: str, part: Range | None = None) -> FoundObject:
        answer = self._get(path, f"bytes={part[0]}-{part[1] - 1}" if part is not None else None)
        if part is not None and answer.status == HTTPStatus.OK:  # the store takes no ranges
            return _found(answer, slice(*part))
        if answer.status not in _FOUND:
            raise self._unavailable(path, f"status {answer.status}")
        return _found(answer)

    def read_tail(self, path: str, nbytes: int) -> ObjectTail:
        answer = self._get(path, f"bytes=-{nbytes}")
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # an empty object has no range of bytes
            answer = self._get(path, None)
        found = _found(answer, slice(-nbytes, None) if answer.status == HTTPStatus.OK else slice(None))
        return ObjectTail(found.data, found.size, found.etag, found.modified)

    def head(self, path: str) -> ObjectInfo:
        tail = self.read_tail(path, 1)  # a URL for GET is good for no HEAD
        return ObjectInfo(path, tail.size, tail.modified)

    def list(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        return self._urls.list(prefix, start_after)

    def folders(self, prefix: str) -> Sequence[str]:
        raise StoreDenied(
            f"{self._where} lists the folders of {prefix[:_MAX_PATH]!r} to callers with credentials only: set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key that may list there"
        )

    def expect(self, paths: Iterable[str]) -> None:
        self._urls.expect(paths)

    def _get(self, path: str, byte_range: str | None) -> Answer:
        """The answer with the object, or with status 416. Tries again what may succeed then."""
        headers = {"Range": byte_range} if byte_range is not None else {}
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        url = self._urls.url(path)
        for retries_left in range(READ_RETRIES, -1, -1):
            answer = self._try(url, headers)
            if isinstance(answer, Answer) and answer.status in _DENIED:
                url = self._urls.renew(path, url)
                answer = self._try(url, headers)
            if isinstance(answer, Answer) and answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                break
            if retries_left:
                sleep(backoff.increase())
        if isinstance(answer, NoAnswer):
            raise self._unavailable(path, answer.cause)
        if answer.status in (*_FOUND, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
            return answer
        raise self._failure(path, answer)

    def _try(self, url: str, headers: Mapping[str, str]) -> Answer | NoAnswer:
        try:
            return self._connections.get(url, headers)
        except NoAnswer as error:
            return error

    def _failure(self, path: str, answer: Answer) -> Exception:
        reason = reason_in(bytes(answer.body[:2000]).decode(errors="replace")) or f"status {answer.status}"
        if answer.status == HTTPStatus.NOT_FOUND:
            return bucket_missing(self._where) if "NoSuchBucket" in reason else ObjectMissing(path)
        if answer.status in _DENIED:
            return StoreDenied(
                f"{self._where} refuses the leader's URL for {path[:_MAX_PATH]!r} ({reason}): the leader's key must "
                "exist and be allowed to read there, and the clocks of leader and store must agree"
            )
        return self._unavailable(path, reason)

    def _unavailable(self, path: str, cause: str) -> StoreUnavailable:
        return StoreUnavailable(f"no clear answer from {self._where} for {path!r}: {cause}", path=path)


def _found(answer: Answer, part: slice = slice(None)) -> FoundObject:
    size = len(answer.body)
    if total := answer.headers.get("Content-Range", "").rpartition("/")[2]:
        size = int(total)
    modified = answer.headers.get("Last-Modified")
    return FoundObject(
        data=memoryview(answer.body)[part],
        etag=answer.headers.get("ETag", ""),
        size=size,
        modified=parsedate_to_datetime(modified) if modified else datetime.fromtimestamp(0, UTC),
    )
