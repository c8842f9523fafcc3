"""Reads of one document are shared, and nobody gets an answer that is older than its question."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from smq_broker.runtime.shared_reads import SharedReads
from support.waiting import HANG_GUARD, eventually


class Document:
    """Each read waits until it may end, and returns what was stored when it began."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.stored: str | Exception = "old"
        self.began = 0
        self.may_end = threading.Semaphore(0)
        self.reads: SharedReads[str, str] = SharedReads()
        self._pool = pool

    def read(self) -> str:
        found = self.stored
        self.began += 1
        assert self.may_end.acquire(timeout=HANG_GUARD)
        if isinstance(found, Exception):
            raise found
        return found

    def request(self, count: int = 1) -> list[Future[str]]:
        return [self._pool.submit(self.reads.read, "key", self.read) for _ in range(count)]


@pytest.fixture
def document() -> Iterator[Document]:
    with ThreadPoolExecutor(20) as pool:
        yield Document(pool)


def test_who_requests_during_a_read_gets_the_next_one(document: Document) -> None:
    (first,) = document.request()
    eventually(lambda: document.began == 1)
    document.stored = "new"
    later = document.request(5)
    eventually(lambda: document.reads._next)
    document.may_end.release()
    assert first.result(HANG_GUARD) == "old"
    eventually(lambda: document.began == 2)
    document.may_end.release(10)
    assert {it.result(HANG_GUARD) for it in later} == {"new"}
    assert not document.reads._running and not document.reads._next


def test_an_error_is_shared_and_not_kept(document: Document) -> None:
    document.stored = OSError("away")
    document.may_end.release(100)
    for requested in document.request(10):
        with pytest.raises(OSError, match="away"):
            requested.result(HANG_GUARD)
    document.stored = "back"
    assert document.request()[0].result(HANG_GUARD) == "back"
