"""A connection to the leader that security prevents says what to change, and does not wait for the timeout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from smq.transport.dialer import DIRECT, Dialer
from smq.transport.leader_client import LeaderClient
from smq.transport.security.credentials import Credentials
from smq.transport.security.security_files import SecurityFiles
from smq_core.errors import InvalidRequest, PermissionDenied, SmqError, Unauthenticated
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from support.secure_release import ME, SecureRelease
from support.waiting import HANG_GUARD


def who_am_i(address: str, dialer: Dialer) -> str:
    client = LeaderClient([address], timeout=HANG_GUARD, dialer=dialer)
    try:
        return str(client.auth.WhoAmI(Empty()).identity)
    finally:
        client.close()


def secure(ca_file: Path, **files: Any) -> Dialer:
    return Dialer(None, Credentials(SecurityFiles(str(ca_file), **files)))


@contextmanager
def open_leader(code: grpc.StatusCode = grpc.StatusCode.OK) -> Iterator[str]:
    class Handler(grpc.GenericRpcHandler):
        def service(self, _: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: context.abort(code, "its words"))

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


def test_a_token_is_sent_to_the_leader_of_the_release(release: SecureRelease) -> None:
    assert who_am_i(release.leader, secure(release.ca_file, token_file=str(release.token_file))) == ME


def test_a_leader_that_speaks_tls_is_named_to_a_client_without_a_ca_file(release: SecureRelease) -> None:
    with pytest.raises(InvalidRequest, match=rf"{release.leader} speaks TLS\. If it is the leader, pass ca_file"):
        who_am_i(release.leader, DIRECT)


def test_a_leader_that_does_not_speak_tls_is_named() -> None:
    with open_leader() as address, pytest.raises(InvalidRequest, match=f"{address} does not speak TLS") as caught:
        who_am_i(address, secure(_roots_of_nobody()))
    assert "without a CA file" in caught.value.message


def test_a_leader_of_another_release_is_named_and_new_roots_are_read(release: SecureRelease, tmp_path: Path) -> None:
    roots = tmp_path / "bundle.crt"
    roots.write_bytes(CertificateAuthority.create("another", now=time.time()).roots)
    client = LeaderClient(
        [release.leader], timeout=HANG_GUARD, dialer=secure(roots, token_file=str(release.token_file))
    )
    with pytest.raises(InvalidRequest, match=f"{release.leader} is not signed by the authorities of {roots}"):
        client.auth.WhoAmI(Empty())
    roots.write_bytes(release.authority.roots)
    assert client.auth.WhoAmI(Empty()).identity == ME
    client.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file"), (b"-----BEGIN", "has no certificate in PEM"), (b"", "has no certificate")],
)
def test_a_ca_file_without_roots_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=words):
        who_am_i("127.0.0.1:1", secure(path))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(grpc.StatusCode.UNAUTHENTICATED, Unauthenticated), (grpc.StatusCode.PERMISSION_DENIED, PermissionDenied)],
)
def test_what_a_proxy_before_the_leader_refuses_is_final(code: grpc.StatusCode, kind: type[SmqError]) -> None:
    with open_leader(code) as address, pytest.raises(kind, match="its words"):
        who_am_i(address, DIRECT)


def _roots_of_nobody() -> Path:
    import tempfile

    with tempfile.NamedTemporaryFile(delete=False, suffix=".crt") as file:
        file.write(CertificateAuthority.create("nobody", now=time.time()).roots)
    return Path(file.name)
