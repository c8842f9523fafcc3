"""The reason that a store gives reaches the person, with what to change."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from smq_core.errors import SmqError, StoreDenied, StoreStateUnknown, StoreUnavailable, StoreUnsupported
from smq_storage.object_store.conditional_writes import RetryPolicy, create
from smq_storage.object_store.conformance_probe import check_conformance
from smq_storage.object_store.store import Store, StoreSettings


class AnsweringStore:
    """An S3 endpoint that gives one answer to every request."""

    def __init__(self) -> None:
        self.status, self.code, self.message = 200, "", ""
        self.requests = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                outer.requests += 1
                self.rfile.read(int(self.headers.get("content-length") or 0))
                body = f"<Error><Code>{outer.code}</Code><Message>{outer.message}</Message></Error>".encode()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=lambda: self.server.serve_forever(0.01), daemon=True).start()

    def open(self) -> Store:
        endpoint = f"http://127.0.0.1:{self.server.server_port}"
        return StoreSettings(url="s3://b", endpoint=endpoint, access_key="k", secret_key="s", timeout=60).open()


@pytest.fixture
def answering() -> Iterator[AnsweringStore]:
    it = AnsweringStore()
    yield it
    it.server.shutdown()
    it.server.server_close()


CALLS = {
    "get": lambda s: s.get("x"),
    "put": lambda s: s.put("x", b""),
    "put_new": lambda s: s.put_new("x", b""),
    "put_if": lambda s: s.put_if("x", b"", '"e"'),
    "delete": lambda s: s.delete("x"),
    "list": lambda s: list(s.list("")),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (400, "AuthorizationHeaderMalformed", "set --filer-region"),
        (301, "PermanentRedirect", "set --filer-region"),
        (403, "RequestTimeTooSkewed", "the clocks of this machine and the store differ"),
        (400, "ExpiredToken", "renew the temporary credentials"),
        (400, "InvalidToken", "AWS_SESSION_TOKEN"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY does not fit"),
        (403, "AccessDenied", "set AWS_ACCESS_KEY_ID"),
    ],
)
def test_a_setting_that_is_wrong_is_named(
    answering: AnsweringStore, call: str, status: int, code: str, advice: str
) -> None:
    answering.status, answering.code, answering.message = status, code, "why it is so"
    with pytest.raises(StoreDenied, match=advice) as caught:
        CALLS[call](answering.open())
    assert status == 301 or f"{code}: why it is so" in caught.value.message, "the library does not show a redirect"


def test_a_store_without_conditional_writes_is_refused_at_once(answering: AnsweringStore) -> None:
    answering.status, answering.code, answering.message = 501, "NotImplemented", "A header is not implemented"
    store = answering.open()

    def write(path: str) -> object:
        policy = RetryPolicy(3600.0)
        return create(store, path, b"", read_back=lambda *_: pytest.fail(), is_mine=bool, retry_policy=policy)

    for refused in (check_conformance, lambda it: it.put_new("x", b""), lambda _: write("x")):
        with pytest.raises(StoreUnsupported, match=r"no conditional writes .*NotImplemented: A header"):
            refused(store)
    with pytest.raises(StoreUnavailable):
        store.put("x", b"")


def test_another_reason_is_shown_and_the_outcome_stays_unknown(answering: AnsweringStore) -> None:
    answering.status, answering.code, answering.message = 503, "SlowDown", "\x1b" + "x" * 10_000
    with pytest.raises(StoreStateUnknown, match="SlowDown: ") as caught:
        answering.open().put_new("x", b"")
    assert isinstance(caught.value, SmqError) and caught.value.message.isprintable()
    assert len(caught.value.message) < 1000
