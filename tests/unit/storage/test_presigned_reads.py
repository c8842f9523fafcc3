"""Reads with presigned URLs: what is asked of the store, what is tried again, and what errors say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from smq_core.errors import BucketMissing, SmqError, StoreDenied, StoreUnavailable
from smq_storage.object_store.presigned import reads
from smq_storage.object_store.results import ObjectInfo
from smq_storage.object_store.store import EtagMismatch, ObjectMissing, Store, StoreSettings

SIGNATURE = "X-Amz-Signature=secret"
DATA = bytes(range(100))
Answers = list[int | Callable[[BaseHTTPRequestHandler], None]]


class Filer:
    """Has one object. ``answers`` are statuses, or functions, for the next requests. ``seen`` has their ranges."""

    def __init__(self) -> None:
        self.data = DATA
        self.answers: Answers = []
        self.code = "Code"
        self.seen: list[str | None] = []
        self.connections = 0
        filer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                filer.connections += 1
                super().setup()

            def do_GET(self) -> None:
                assert self.path.endswith(SIGNATURE)
                filer.seen.append(self.headers.get("range"))
                answer = filer.answers.pop(0) if filer.answers else 200
                if not isinstance(answer, int):
                    answer(self)
                elif answer == 200:
                    filer.send(self)
                else:
                    body = f"<Error><Code>{filer.code}</Code></Error>".encode()
                    self.reply(answer, body)

            def reply(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in ({"content-length": str(len(body))} | headers).items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def send(self, request: BaseHTTPRequestHandler) -> None:
        """The object, or the part that the request names."""
        headers = {"etag": '"e"', "last_modified": "Sun, 29 Nov 2026 13:00:00 GMT"}
        byte_range, size = request.headers.get("range"), len(self.data)
        if byte_range is None:
            request.reply(200, self.data, **headers)  # type: ignore[attr-defined]
            return
        first, _, last = byte_range.removeprefix("bytes=").partition("-")
        start, stop = (int(first), min(int(last) + 1, size)) if first else (max(0, size - int(last)), size)
        if start >= size:
            request.reply(416, b"")  # type: ignore[attr-defined]
            return
        headers["content_range"] = f"bytes {start}-{stop - 1}/{size}"
        request.reply(206, self.data[start:stop], **headers)  # type: ignore[attr-defined]


class Urls:
    """``renewed`` counts the URLs that were refused."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.renewed = 0

    def url(self, path: str) -> str:
        return f"{self.root}/{path}?{SIGNATURE}"

    def renew(self, path: str, refused: str) -> str:
        assert refused == self.url(path)
        self.renewed += 1
        return self.url(path)

    def list(self, folder: str, start_after: str | None) -> Iterator[ObjectInfo]:
        raise NotImplementedError

    def expect(self, paths: object) -> None: ...


@pytest.fixture
def filer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Filer]:
    monkeypatch.setattr(reads, "FIRST_PAUSE_SECONDS", 0.0)
    made = Filer()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def urls(filer: Filer) -> Urls:
    return Urls(f"http://127.0.0.1:{filer.http.server_port}/smq")


@pytest.fixture
def store(urls: Urls) -> Store:
    return StoreSettings(url="s3://smq", needs_credentials=True).open(urls)


def test_objects_are_read_over_one_connection(filer: Filer, store: Store) -> None:
    whole = store.get("a")
    assert (bytes(whole.data), whole.etag) == (DATA, '"e"')
    assert bytes(store.get_range("a", 10, 20)) == DATA[10:20] and bytes(store.get_range("a", 90, 200)) == DATA[90:]
    with pytest.raises(EtagMismatch):
        store.get_range("a", 0, 1, '"other"')
    tail = store.get_tail("a", 7)
    assert (bytes(tail.data), tail.size, tail.etag) == (DATA[-7:], 100, '"e"')
    assert store.head("a") == ObjectInfo("a", 100, tail.modified) and tail.modified.hour == 13
    assert filer.seen == [None, "bytes=10-19", "bytes=90-199", "bytes=0-0", "bytes=-7", "bytes=-1"]
    assert filer.connections == 1


def test_an_empty_object_has_an_empty_tail(filer: Filer, store: Store) -> None:
    filer.data = b""
    filer.answers = [416]
    tail = store.get_tail("a", 7)
    assert (bytes(tail.data), tail.size) == (b"", 0)


def test_a_store_without_ranges_sends_no_more_than_was_requested(filer: Filer, store: Store) -> None:
    def whole(request: BaseHTTPRequestHandler) -> None:
        del request.headers["range"]
        filer.send(request)

    filer.answers = [whole, whole]
    assert bytes(store.get_range("a", 10, 20)) == DATA[10:20]
    assert bytes(store.get_tail("a", 7).data) == DATA[-7:]


def close(request: BaseHTTPRequestHandler) -> None:
    request.close_connection = True


@pytest.mark.parametrize("answers", [[503, 500], [close, 503]])
def test_what_may_succeed_is_tried_three_times(filer: Filer, store: Store, answers: Answers) -> None:
    filer.answers = list(answers)
    assert bytes(store.get("a").data) == DATA and len(filer.seen) == 3
    filer.answers = [503, 503, 503]
    with pytest.raises(StoreUnavailable, match="no clear answer"):
        store.get("a")


def test_a_kept_connection_that_the_store_has_closed_is_no_failure(filer: Filer, store: Store) -> None:
    store.get("a")
    filer.answers = [close, 200]
    assert bytes(store.get("a").data) == DATA and filer.connections == 2


def test_a_refused_url_is_renewed_once(filer: Filer, store: Store, urls: Urls) -> None:
    filer.answers = [403]
    assert bytes(store.get("a").data) == DATA and urls.renewed == 1
    filer.answers = [403, 403]
    with pytest.raises(StoreDenied, match="the leader's URL for 'a'"):
        store.get("a")
    assert urls.renewed == 2 and not filer.answers


@pytest.mark.parametrize(("code", "error"), [("NoSuchKey", ObjectMissing), ("NoSuchBucket", BucketMissing)])
def test_what_is_not_there_is_named(filer: Filer, store: Store, code: str, error: type[Exception]) -> None:
    filer.answers, filer.code = [404], code
    with pytest.raises(error):
        store.get("a")


@pytest.mark.parametrize("answers", [[403, 403], [503] * 3, [close] * 3, [302]])
def test_no_error_shows_a_url(filer: Filer, store: Store, answers: Answers) -> None:
    filer.answers = list(answers)
    with pytest.raises(SmqError) as caught:
        store.get("a")
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in str(error) and "secret" not in repr(error)
        error = None if error.__suppress_context__ else error.__context__


def test_nobody_listens(urls: Urls, store: Store) -> None:
    urls.root = "http://127.0.0.1:1/smq"
    with pytest.raises(StoreUnavailable, match=r"s3://smq for 'a': connection refused"):
        store.get("a")


def test_a_proxy_is_used(filer: Filer, urls: Urls) -> None:
    proxy = urls.root.removesuffix("/smq")
    urls.root = "http://filer.cluster:8333/smq"
    store = StoreSettings(url="s3://smq", proxy=proxy).open(urls)
    assert bytes(store.get("a").data) == DATA
