"""A store whose certificate is signed by a private authority."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from smq_core.errors import StoreUnavailable
from smq_storage.object_store.presigned import connections
from smq_storage.object_store.results import ObjectInfo
from smq_storage.object_store.store import StoreSettings
from support.waiting import HANG_GUARD


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_certificates(folder: Path) -> None:
    """``ca.pem``, and ``server.pem`` with ``server.key``, which it has signed for 127.0.0.1."""
    key = ("-newkey", "rsa:2048", "-nodes", "-keyout")
    openssl(folder, "req", "-x509", *key, "ca.key", "-out", "ca.pem", "-subj", "/CN=private authority")
    openssl(folder, "req", *key, "server.key", "-out", "server.csr", "-subj", "/CN=store")
    (folder / "server.ext").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    signed_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(folder, "x509", "-req", "-in", "server.csr", *signed_by, "-extfile", "server.ext", "-out", "server.pem")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("ETag", '"e"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"found")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    make_certificates(tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Urls:
    """Of a reader without credentials."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def url(self, path: str) -> str:
        return f"{self._endpoint}/b/{path}?X-Amz-Signature=s"

    def renew(self, path: str, refused: str) -> str:
        raise NotImplementedError

    def list(self, folder: str, start_after: str | None) -> Iterator[ObjectInfo]:
        raise NotImplementedError

    def expect(self, files: object) -> None: ...


def test_the_authority_is_that_of_ssl_cert_file(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = StoreSettings(url="s3://b", endpoint=endpoint, access_key="k", secret_key="s", timeout=HANG_GUARD)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(StoreUnavailable, match=r"not signed by an authority that is known here: set SSL_CERT_FILE"):
        settings.open().get("x")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    found = settings.open().get("x")
    assert found is not None and bytes(found.data) == b"found"


def test_it_is_the_same_for_presigned_urls(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = StoreSettings(url="s3://b", endpoint=endpoint, timeout=HANG_GUARD)
    for trusted in (False, True):
        connections.tls_of_environment.cache_clear()
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
            assert bytes(settings.open(Urls(endpoint)).get("x").data) == b"found"
            continue
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(StoreUnavailable, match=r"its certificate is not accepted.*set SSL_CERT_FILE"):
            settings.open(Urls(endpoint)).get("x")
    connections.tls_of_environment.cache_clear()
