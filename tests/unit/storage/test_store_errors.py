"""Whatever the store's client raises becomes an error of this project."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from smq_core.errors import InvalidRequest, StoreDenied, StoreStateUnknown
from smq_storage.object_store.store import Store, open_store

DENIED = (
    b'<?xml version="1.0"?><DeleteResult><Error><Key>%s</Key><Code>AccessDenied</Code>'
    b"<Message>Access Denied</Message></Error></DeleteResult>"
)


class FakeS3:
    """Answers each request with ``answer``."""

    def __init__(self) -> None:
        self.answer = b""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(200)
                self.send_header("content-length", str(len(server.answer)))
                self.end_headers()
                self.wfile.write(server.answer)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def store(self) -> Store:
        endpoint = f"http://127.0.0.1:{self.http.server_port}"
        return open_store("s3://bucket/root", endpoint=endpoint, access_key="a", secret_key="s")


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    made = FakeS3()
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_a_denied_deletion_is_a_denial(s3: FakeS3) -> None:
    s3.answer = DENIED % b"root/x"
    with pytest.raises(StoreDenied, match="AccessDenied"):
        s3.store().delete("x")


def test_an_answer_that_the_client_does_not_expect_is_no_clear_answer(s3: FakeS3) -> None:
    s3.answer = DENIED % b"another"
    with pytest.raises(StoreStateUnknown, match="no clear answer"):
        s3.store().delete("x")


CALLS: dict[str, Callable[[Store, str], object]] = {
    "get": lambda store, path: store.get(path),
    "get_range": lambda store, path: store.get_range(path, 0, 1),
    "get_tail": lambda store, path: store.get_tail(path, 1),
    "head": lambda store, path: store.head(path),
    "put": lambda store, path: store.put(path, b""),
    "put_new": lambda store, path: store.put_new(path, b""),
    "put_if": lambda store, path: store.put_if(path, b"", "etag"),
    "delete": lambda store, path: store.delete(path),
    "list": lambda store, path: list(store.list(path)),
    "folders": lambda store, path: store.folders(path),
}


@pytest.mark.parametrize("path", ["a//b", "../x", "a/./b", "a\0b", "a\nb"])
@pytest.mark.parametrize("call", CALLS)
def test_a_path_that_no_store_has_is_an_invalid_request(call: str, path: str) -> None:
    with pytest.raises(InvalidRequest, match="has no path"):
        CALLS[call](open_store("memory://"), path)
